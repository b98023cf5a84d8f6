import sys
import time

from orce.artefacts import files


def work(chunk):
    time.sleep(0.02)
    with open(sys.argv[1] + ".log", "a") as log:
        print(chunk[0], file=log)
    return [{"id": i} for i in chunk]


list(files.in_chunks(sys.argv[1], list(range(60)), 2, "t", work))
