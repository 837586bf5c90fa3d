"""Runs the behaviour tests again and again, some of the time with one core kept busy: `python tests/repeat.py 10 10`.

Each round is two pytest processes side by side, which share the tests by transport. Ends with one JSON line, and exit
code 1 if any round failed.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import time

SHARES = ("unix", "not unix")


def burn() -> None:
    while True:
        pass


def run_round() -> bool:
    """Whether all tests passed; what pytest says of those that did not goes to stderr."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/behaviour", "tests/faults", "-k"]
    runs = [
        subprocess.Popen([*command, share], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for share in SHARES
    ]
    said = [run.communicate()[0] for run in runs]
    for run, text in zip(runs, said, strict=True):
        if run.returncode:
            sys.stderr.write(text)
    return not any(run.returncode for run in runs)


def main(idle: int, loaded: int) -> int:
    begun, failed = time.monotonic(), 0
    for number in range(idle + loaded):
        burner = multiprocessing.Process(target=burn, daemon=True) if number >= idle else None
        if burner is not None:
            burner.start()
            os.sched_setaffinity(burner.pid or 0, {max(os.sched_getaffinity(0))})
        round_begun = time.monotonic()
        passed = run_round()
        if burner is not None:
            burner.kill()
            burner.join()
        failed += not passed
        took_s = time.monotonic() - round_begun
        load = "one core busy" if burner is not None else "idle"
        sys.stderr.write(f"round {number + 1}: {'passed' if passed else 'FAILED'} in {took_s:.0f} s, {load}\n")
    minutes = round((time.monotonic() - begun) / 60, 1)
    print(
        json.dumps({"name": "behaviour.repeat", "idle": idle, "loaded": loaded, "failed": failed, "minutes": minutes})
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:3])))
