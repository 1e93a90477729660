"""What /proc/cpuinfo says of some processors."""

from __future__ import annotations

LISTED = """processor\t: 0
vendor_id\t: {vendor}
cpu family\t: {family}
model name\t: some {vendor} of family 25
flags\t\t: fpu avx2 {flags}

processor\t: 1
vendor_id\t: AuthenticAMD
cpu family\t: 25
flags\t\t: avx512f
"""


ZEN_4 = LISTED.format(vendor="AuthenticAMD", family=25, flags="avx512f avx512bw")


OTHERS = {
    "zen 3": LISTED.format(vendor="AuthenticAMD", family=25, flags="sse4a"),
    "zen 5": LISTED.format(vendor="AuthenticAMD", family=26, flags="avx512f avx512bw"),
    "intel": LISTED.format(vendor="GenuineIntel", family=25, flags="avx512f avx512bw"),
    "arm": "processor\t: 0\nCPU implementer\t: 0x41\n",
}
