from esper.leyline.v1 import barrier_pb2 as _barrier_pb2
from esper.leyline.v1 import commands_pb2 as _commands_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunRecord(_message.Message):
    __slots__ = ("version", "worker", "incarnation", "rank", "world_size", "began", "judged", "ended")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    JUDGED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    version: int
    worker: str
    incarnation: int
    rank: int
    world_size: int
    began: RunBegan
    judged: RoundJudged
    ended: RunEnded
    def __init__(self, version: _Optional[int] = ..., worker: _Optional[str] = ..., incarnation: _Optional[int] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., began: _Optional[_Union[RunBegan, _Mapping]] = ..., judged: _Optional[_Union[RoundJudged, _Mapping]] = ..., ended: _Optional[_Union[RunEnded, _Mapping]] = ...) -> None: ...

class RunBegan(_message.Message):
    __slots__ = ("first_step", "epoch", "resumed", "parameter_digest", "decisions_after", "num_threads", "torch_version", "python_version", "machine", "device", "script", "rounds_again", "esper_version", "numerics", "part_digest")
    class NumericsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_AFTER_FIELD_NUMBER: _ClassVar[int]
    NUM_THREADS_FIELD_NUMBER: _ClassVar[int]
    TORCH_VERSION_FIELD_NUMBER: _ClassVar[int]
    PYTHON_VERSION_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_AGAIN_FIELD_NUMBER: _ClassVar[int]
    ESPER_VERSION_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    PART_DIGEST_FIELD_NUMBER: _ClassVar[int]
    first_step: int
    epoch: int
    resumed: bool
    parameter_digest: bytes
    decisions_after: str
    num_threads: int
    torch_version: str
    python_version: str
    machine: str
    device: str
    script: _containers.RepeatedScalarFieldContainer[str]
    rounds_again: _containers.RepeatedScalarFieldContainer[int]
    esper_version: str
    numerics: _containers.ScalarMap[str, str]
    part_digest: bytes
    def __init__(self, first_step: _Optional[int] = ..., epoch: _Optional[int] = ..., resumed: _Optional[bool] = ..., parameter_digest: _Optional[bytes] = ..., decisions_after: _Optional[str] = ..., num_threads: _Optional[int] = ..., torch_version: _Optional[str] = ..., python_version: _Optional[str] = ..., machine: _Optional[str] = ..., device: _Optional[str] = ..., script: _Optional[_Iterable[str]] = ..., rounds_again: _Optional[_Iterable[int]] = ..., esper_version: _Optional[str] = ..., numerics: _Optional[_Mapping[str, str]] = ..., part_digest: _Optional[bytes] = ...) -> None: ...

class RoundJudged(_message.Message):
    __slots__ = ("round", "outcomes")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    round: int
    outcomes: _containers.RepeatedCompositeFieldContainer[_commands_pb2.CommandReceipt]
    def __init__(self, round: _Optional[int] = ..., outcomes: _Optional[_Iterable[_Union[_commands_pb2.CommandReceipt, _Mapping]]] = ...) -> None: ...

class RunEnded(_message.Message):
    __slots__ = ("report", "round_applied", "not_replayable", "num_orders", "orders_digest")
    REPORT_FIELD_NUMBER: _ClassVar[int]
    ROUND_APPLIED_FIELD_NUMBER: _ClassVar[int]
    NOT_REPLAYABLE_FIELD_NUMBER: _ClassVar[int]
    NUM_ORDERS_FIELD_NUMBER: _ClassVar[int]
    ORDERS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    report: _barrier_pb2.WorkerReport
    round_applied: int
    not_replayable: str
    num_orders: int
    orders_digest: bytes
    def __init__(self, report: _Optional[_Union[_barrier_pb2.WorkerReport, _Mapping]] = ..., round_applied: _Optional[int] = ..., not_replayable: _Optional[str] = ..., num_orders: _Optional[int] = ..., orders_digest: _Optional[bytes] = ...) -> None: ...
