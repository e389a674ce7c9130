"""How long the command line and the service take: the median of ten, on whatever machine this runs on.

python scripts/bench/bench_speed.py
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "llama-3-8b.json"
TILEWISE = Path(sys.executable).parent / "tilewise"
RUNS = 10


def median_s(action: Callable[[], object]) -> float:
    """Median wall time of RUNS runs after one that does not count."""
    action()
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def process(*arguments: str | Path) -> Callable[[], object]:
    command = [str(argument) for argument in (TILEWISE, *arguments)]
    return lambda: subprocess.run(command, check=True, capture_output=True)


def in_process() -> dict[str, Callable[[], object]]:
    """One question and a batch of 1,000 shapes, asked of the embedded client."""
    from tilewise.client.client import TilewiseClient
    from tilewise.v1.advisor_service_pb2 import DETAIL_LAYERS, PredictRequest
    from tilewise.v1.model_pb2 import Model
    from tilewise.v1.workload_pb2 import PHASE_PREFILL, Workload

    client, text = TilewiseClient(), EXAMPLE.read_text()
    workload = Workload(phase=PHASE_PREFILL, batch=1, sequence=2048)

    def asked(detail: int, **sizes: int) -> PredictRequest:
        model = Model(config_json=text, overrides=sizes)
        return PredictRequest(model=model, workload=workload, gpu="h100-sxm5-80gb", detail=detail)

    single = asked(DETAIL_LAYERS)
    return {
        "warm predict, in process": lambda: client.predict(single),
        "BatchPredict of 1,000 shapes, in process, its messages made and answered": lambda: client.batch_predict(
            [asked(0, intermediate_size=8192 + 16 * i) for i in range(1000)]
        ),
    }


def main() -> None:
    predict = ("predict", EXAMPLE, "--gpu", "h100-sxm5-80gb", "--phase", "prefill", "--seq", "2048")
    actions = {
        "tilewise --help, whole process": process("--help"),
        "tilewise predict of Llama-3-8B, whole process": process(*predict),
        **in_process(),
    }
    for name, action in actions.items():
        print(f"{1e3 * median_s(action):8.2f} ms  {name}")


if __name__ == "__main__":
    main()
