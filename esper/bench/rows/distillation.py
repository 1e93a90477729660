"""What distilling costs: the teacher's forward in each mode, the loss, the step that both join; and what it gains."""

from __future__ import annotations

from dataclasses import replace

from esper.bench.agreement import Tolerance
from esper.bench.lazily import lazily, measured_by
from esper.bench.row import Comparison, Goal, Measurement, Row

Widths = tuple[int, ...]

KD_MS, KD_ASPIRED_MS = 10.0, 8.0  # unified design, 7: knowledge distillation; here the student's step is part of it
FORWARD_MS, FORWARD_ASPIRED_MS = 12.0, 8.0  # performance validation, 1.1
LOSS_MS, LOSS_ASPIRED_MS = 2.0, 1.0
KEPT_OF_THROUGHPUT, KEPT_ASPIRED = 0.85, 0.9  # 1.2: 850 of 1,000 samples/s, 800 to 900 being acceptable

# kasmina-performance-validation.md, 2.1 and 3.1: widths, and the batch that they run them with.
TEACHERS: dict[str, tuple[Widths, int]] = {
    "teacher-forward": ((784, 512, 256, 128, 10), 32),
    "teacher-forward-benchmark": ((784, 1024, 512, 256, 10), 128),
    "teacher-forward-large": ((1024, 4096, 4096, 2048, 2048, 1024, 512, 10), 32),
}
TEACHER, BATCH = TEACHERS["teacher-forward-benchmark"]
STUDENT: Widths = (784, 256, 128, 10)
# Their validation's, their benchmark's, an ImageNet head, and the largest of their tables.
LOGITS = {
    "kd-loss": (32, 10),
    "kd-loss-128x10": (128, 10),
    "kd-loss-256x1000": (256, 1000),
    "kd-loss-512x50000": (512, 50_000),
}
# In units of the root mean square of all values, as answers are given.
ROUNDING = Tolerance(absolute=1e-4)  # of float32, over sums of up to 4,096 products
QUANTISED = Tolerance(absolute=0.1)  # int8 and bfloat16 weights, by which 0.2 to 0.7 % of the whole were lost in trials


def forward(row: str, widths: Widths, batch: int) -> Comparison:
    return Comparison(
        row,
        "distillation",
        arms=(
            lazily("model alone", "teachers.modes:bare", widths, batch),
            lazily("teacher", "teachers.modes:held", widths, batch),
            lazily("its products alone", "teachers.modes:products", widths, batch),
            lazily("its weights read once", "teachers.modes:weights_read", widths),
        ),
        shape=f"{batch} x {'-'.join(map(str, widths))}",
        goals=(Goal("teacher", "p50", FORWARD_MS, FORWARD_ASPIRED_MS),),
        tolerance=ROUNDING,
        limit="its products alone",
    )


def loading(widths: Widths, size: str) -> Comparison:
    return Comparison(
        "teacher-load",
        "distillation",
        arms=(
            lazily("safetensors alone", "teachers.loading:parsed", widths),
            lazily("loaded", "teachers.loading:loaded", widths),
            lazily("read and hashed", "teachers.loading:hashed", widths),
            lazily("read", "teachers.loading:read", widths),
        ),
        shape=f"{size}, {'-'.join(map(str, widths))}, the file in the page cache",
        tolerance=ROUNDING,
        limit="read",
    )


def modes() -> Comparison:
    return Comparison(
        "int8-teacher",
        "distillation",
        arms=(
            lazily("float32", "teachers.modes:held", TEACHER, BATCH),
            lazily("model alone", "teachers.modes:bare", TEACHER, BATCH),
            lazily("int8", "teachers.modes:held", TEACHER, BATCH, "int8", needs=["torchao"]),
            lazily("offload", "teachers.modes:held", TEACHER, BATCH, "offload"),
            lazily("bfloat16", "teachers.modes:held", TEACHER, BATCH, "full", "bfloat16"),
            lazily("its weights read once", "teachers.modes:weights_read", TEACHER),
        ),
        shape=f"{BATCH} x {'-'.join(map(str, TEACHER))}",
        goals=tuple(Goal(arm, "p50", FORWARD_MS, FORWARD_ASPIRED_MS) for arm in ("int8", "offload", "bfloat16")),
        tolerance=QUANTISED,
        limit="its weights read once",
    )


def loss(row: str, batch: int, classes: int) -> Comparison:
    """Value and gradient; the documents time the value alone, by the clock before a device has it."""
    return Comparison(
        row,
        "distillation",
        arms=(
            lazily("the documents' line", "teachers.softened:theirs", batch, classes),
            lazily("StaticKDLoss", "teachers.softened:ours", batch, classes),
            lazily("composed of operations", "teachers.softened:in_operations", batch, classes),
            lazily("both logits read once", "teachers.softened:read_once", batch, classes),
        ),
        shape=f"{batch} x {classes}",
        goals=(Goal("StaticKDLoss", "p50", LOSS_MS, LOSS_ASPIRED_MS),),
        tolerance=ROUNDING,
        limit="both logits read once",
    )


# Arms agree on the student's hard loss at its first step; what is added to it may be 1 % off, as that is float32.
STEP = Comparison(
    "training-throughput-kd",
    "distillation",
    arms=(
        lazily("without KD", "teachers.students:alone", STUDENT, BATCH),
        lazily("with KD", "teachers.students:taught", STUDENT, TEACHER, BATCH),
        lazily("with KD, logits kept", "teachers.students:taught_from_kept", STUDENT, TEACHER, BATCH),
        lazily("KD by hand", "teachers.students:taught_by_hand", STUDENT, TEACHER, BATCH),
        lazily("teacher's products alone", "teachers.modes:products", TEACHER, BATCH),
    ),
    shape=f"batch {BATCH}, student {'-'.join(map(str, STUDENT))}, teacher {'-'.join(map(str, TEACHER))}",
    goals=tuple(
        Goal(arm, *asked)
        for arm in ("with KD", "with KD, logits kept")
        for asked in (("ratio", 1 / KEPT_OF_THROUGHPUT, 1 / KEPT_ASPIRED), ("p50", KD_MS, KD_ASPIRED_MS))
    ),
    tolerance=Tolerance(relative=0.01),
    limit="teacher's products alone",
)

HEAVY = frozenset({"teacher-forward-large", "kd-loss-512x50000"})


def weighed(row: Comparison) -> Comparison:
    return replace(row, is_heavy=row.name in HEAVY)


ROWS: tuple[Row, ...] = (
    *(weighed(forward(row, *shape)) for row, shape in TEACHERS.items()),
    modes(),
    Measurement("teacher-load", "distillation", measured_by("teachers.loading:measure"), times=20.0),
    Measurement("teacher-memory", "distillation", measured_by("teachers.held:measure"), times=20.0),
    *(weighed(loss(row, *shape)) for row, shape in LOGITS.items()),
    Measurement("kd-memory", "distillation", measured_by("teachers.softened:memory"), times=20.0),
    Measurement(STEP.name, STEP.family, measured_by("teachers.throughput:measure")),
    Measurement("kd-convergence", "distillation", measured_by("teachers.convergence:measure"), times=10.0),
    Measurement("kd-convergence-few", "distillation", measured_by("teachers.convergence:measure_few"), times=10.0),
)
