"""Whether tests look at everything, or in the normal run at what shows each kind of mistake."""

import os

HAS_EVERYTHING = os.environ.get("OPENINFER_TEST_CHECKS") == "all"
