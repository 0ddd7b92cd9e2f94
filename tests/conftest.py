"""One thread for torch, before anything loads it: quicker for small models, and sums have one order everywhere."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
