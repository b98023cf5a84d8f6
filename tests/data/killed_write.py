import os
import signal
import sys

from orce.artefacts import store

kept = os.replace


def replace(source, target):
    if str(target).endswith(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    kept(source, target)


os.replace = replace
store.write("results/sums/small/samples.jsonl", [{"id": 1}])
