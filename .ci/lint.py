"""Snakemake's linter without one of its lints: python .ci/lint.py snakemake [ARGUMENT ...]

It wants a conda environment or a container for each rule. Here a rule runs in the environment of Snakemake itself or of the
config key `python`: one way that is tested, and envs/ says what is in it. (`--lint json` prints no JSON in Snakemake 9.27.)
"""

import re
import subprocess
import sys

ACCEPTED = "Specify a conda environment or container for each rule"

done = subprocess.run([*sys.argv[1:], "--lint"], capture_output=True, text=True, check=False)
start, *parts = re.split(r"^(?=Lints for )", done.stdout + done.stderr, flags=re.MULTILINE)
others = [part for part in parts if re.search(rf"^    \* (?!{ACCEPTED})", part, re.MULTILINE)]
if others or (done.returncode and not parts):  # without a lint, it failed at the rules themselves
    sys.exit("".join(others) or start)
