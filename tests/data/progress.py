import sys
import time

from orce.runtime.process import Progress, say

progress = Progress("sample arithmetic/[small]", 40, every=float(sys.argv[1]))
for done in range(8, 41, 8):
    progress.update(done, f"loss {1 / done:.4f}")
    if done == 24:
        say("[lease] GPU 2,3")
    if done == 32 and "fail" in sys.argv:
        raise SystemExit("orce sample: no such file")
    time.sleep(0.15)
say("finished")
