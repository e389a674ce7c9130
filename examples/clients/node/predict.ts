// Asks a Tilewise server for a prediction, from the .proto files alone: node built/predict.js CONFIG.json HOST:PORT
// TILEWISE_TOKEN is sent where it is set; TILEWISE_CA is the PEM of the authority that signed the server's certificate.
import { readFileSync } from "node:fs";
import { ChannelCredentials, Metadata, ServiceError, credentials } from "@grpc/grpc-js";
import { AdvisorServiceClient, PredictRequest, PredictResponse } from "./generated/tilewise/v1/advisor_service";
import { Phase } from "./generated/tilewise/v1/workload";

const [config, server] = process.argv.slice(2);
const authority = process.env.TILEWISE_CA;
const channel: ChannelCredentials = authority ? credentials.createSsl(readFileSync(authority)) : credentials.createInsecure();
const client = new AdvisorServiceClient(server, channel);

const metadata = new Metadata();
if (process.env.TILEWISE_TOKEN) metadata.set("authorization", `Bearer ${process.env.TILEWISE_TOKEN}`);

const request = PredictRequest.fromPartial({
  model: { configJson: readFileSync(config, "utf8") },
  workload: { phase: Phase.PHASE_PREFILL, batch: 1, sequence: 2048 },
  gpu: process.env.TILEWISE_GPU ?? "h100-sxm5-80gb",
});

client.predict(request, metadata, { deadline: Date.now() + 10_000 }, (error: ServiceError | null, answer: PredictResponse) => {
  if (error) {
    console.error(`error ${error.code}: ${error.details}`);
    process.exitCode = 1;
  } else {
    const time = answer.step!.prediction!;
    console.log(JSON.stringify({ time_s: time.timeS, time_low_s: time.timeLowS, time_high_s: time.timeHighS, calibration: time.calibration }));
  }
  client.close();
});
