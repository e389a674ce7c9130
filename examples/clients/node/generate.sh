#!/bin/sh
# Makes the client from the .proto files. google/rpc/status.proto comes with googleapis-common-protos (or from
# github.com/googleapis/googleapis); PYTHON has it and grpcio-tools.
set -e
cd "$(dirname "$0")"
python=${PYTHON:-python3}
protos=${TILEWISE_PROTO:-../../../proto}
google=$("$python" -c "import google.rpc.status_pb2 as status, pathlib; print(pathlib.Path(status.__file__).parents[2])")
mkdir -p generated
"$python" -m grpc_tools.protoc -I "$protos" -I "$google" --plugin=node_modules/.bin/protoc-gen-ts_proto \
  --ts_proto_out=generated --ts_proto_opt=outputServices=grpc-js,esModuleInterop=true \
  tilewise/v1/advisor_service.proto
