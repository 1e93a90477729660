from esper.leyline.v1 import barrier_pb2 as _barrier_pb2
from esper.leyline.v1 import commands_pb2 as _commands_pb2
from esper.leyline.v1 import enums_pb2 as _enums_pb2
from esper.leyline.v1 import runs_pb2 as _runs_pb2
from esper.leyline.v1 import telemetry_pb2 as _telemetry_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OpenedCommand(_message.Message):
    __slots__ = ("ref", "adaptation", "optimizer")
    REF_FIELD_NUMBER: _ClassVar[int]
    ADAPTATION_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    ref: _barrier_pb2.CommittedCommand
    adaptation: _commands_pb2.AdaptationCommand
    optimizer: _commands_pb2.OptimizerCommand
    def __init__(self, ref: _Optional[_Union[_barrier_pb2.CommittedCommand, _Mapping]] = ..., adaptation: _Optional[_Union[_commands_pb2.AdaptationCommand, _Mapping]] = ..., optimizer: _Optional[_Union[_commands_pb2.OptimizerCommand, _Mapping]] = ...) -> None: ...

class CommitOrder(_message.Message):
    __slots__ = ("commit", "commands", "entry_id", "unasked")
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    UNASKED_FIELD_NUMBER: _ClassVar[int]
    commit: _barrier_pb2.BarrierCommit
    commands: _containers.RepeatedCompositeFieldContainer[OpenedCommand]
    entry_id: str
    unasked: bool
    def __init__(self, commit: _Optional[_Union[_barrier_pb2.BarrierCommit, _Mapping]] = ..., commands: _Optional[_Iterable[_Union[OpenedCommand, _Mapping]]] = ..., entry_id: _Optional[str] = ..., unasked: _Optional[bool] = ...) -> None: ...

class ToTrainer(_message.Message):
    __slots__ = ("ready", "proposal", "commit", "abort", "rows_stored", "failed", "report_stored", "windows", "recalled", "foreseen", "statement_stored")
    READY_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    ROWS_STORED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    REPORT_STORED_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    RECALLED_FIELD_NUMBER: _ClassVar[int]
    FORESEEN_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_STORED_FIELD_NUMBER: _ClassVar[int]
    ready: RuntimeReady
    proposal: _barrier_pb2.BarrierProposal
    commit: CommitOrder
    abort: _barrier_pb2.BarrierAbort
    rows_stored: RowsStored
    failed: RuntimeFailed
    report_stored: ReportStored
    windows: WindowsChanged
    recalled: Recalled
    foreseen: _commands_pb2.SeedCommand
    statement_stored: StatementStored
    def __init__(self, ready: _Optional[_Union[RuntimeReady, _Mapping]] = ..., proposal: _Optional[_Union[_barrier_pb2.BarrierProposal, _Mapping]] = ..., commit: _Optional[_Union[CommitOrder, _Mapping]] = ..., abort: _Optional[_Union[_barrier_pb2.BarrierAbort, _Mapping]] = ..., rows_stored: _Optional[_Union[RowsStored, _Mapping]] = ..., failed: _Optional[_Union[RuntimeFailed, _Mapping]] = ..., report_stored: _Optional[_Union[ReportStored, _Mapping]] = ..., windows: _Optional[_Union[WindowsChanged, _Mapping]] = ..., recalled: _Optional[_Union[Recalled, _Mapping]] = ..., foreseen: _Optional[_Union[_commands_pb2.SeedCommand, _Mapping]] = ..., statement_stored: _Optional[_Union[StatementStored, _Mapping]] = ...) -> None: ...

class RuntimeReady(_message.Message):
    __slots__ = ("run_id", "decided")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    decided: str
    def __init__(self, run_id: _Optional[str] = ..., decided: _Optional[str] = ...) -> None: ...

class WindowsChanged(_message.Message):
    __slots__ = ("fields",)
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    fields: _containers.ScalarMap[str, bytes]
    def __init__(self, fields: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class Recalled(_message.Message):
    __slots__ = ("orders", "is_last")
    ORDERS_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    orders: _containers.RepeatedCompositeFieldContainer[CommitOrder]
    is_last: bool
    def __init__(self, orders: _Optional[_Iterable[_Union[CommitOrder, _Mapping]]] = ..., is_last: _Optional[bool] = ...) -> None: ...

class RuntimeFailed(_message.Message):
    __slots__ = ("sentence",)
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    sentence: str
    def __init__(self, sentence: _Optional[str] = ...) -> None: ...

class RowsStored(_message.Message):
    __slots__ = ("through_sequence",)
    THROUGH_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    through_sequence: int
    def __init__(self, through_sequence: _Optional[int] = ...) -> None: ...

class ReportStored(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ToRuntime(_message.Message):
    __slots__ = ("heartbeat", "vote", "applied", "rows", "farewell", "record", "recall", "begin", "kept", "statement")
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    VOTE_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    FAREWELL_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    RECALL_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    heartbeat: _barrier_pb2.Heartbeat
    vote: _barrier_pb2.BarrierVote
    applied: RoundApplied
    rows: TelemetryRows
    farewell: _barrier_pb2.Heartbeat
    record: _runs_pb2.RunRecord
    recall: Recall
    begin: Begin
    kept: Kept
    statement: Statement
    def __init__(self, heartbeat: _Optional[_Union[_barrier_pb2.Heartbeat, _Mapping]] = ..., vote: _Optional[_Union[_barrier_pb2.BarrierVote, _Mapping]] = ..., applied: _Optional[_Union[RoundApplied, _Mapping]] = ..., rows: _Optional[_Union[TelemetryRows, _Mapping]] = ..., farewell: _Optional[_Union[_barrier_pb2.Heartbeat, _Mapping]] = ..., record: _Optional[_Union[_runs_pb2.RunRecord, _Mapping]] = ..., recall: _Optional[_Union[Recall, _Mapping]] = ..., begin: _Optional[_Union[Begin, _Mapping]] = ..., kept: _Optional[_Union[Kept, _Mapping]] = ..., statement: _Optional[_Union[Statement, _Mapping]] = ...) -> None: ...

class Statement(_message.Message):
    __slots__ = ("incarnation", "number", "state", "report")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    number: int
    state: _telemetry_pb2.SystemStatePacket
    report: _telemetry_pb2.FieldReport
    def __init__(self, incarnation: _Optional[int] = ..., number: _Optional[int] = ..., state: _Optional[_Union[_telemetry_pb2.SystemStatePacket, _Mapping]] = ..., report: _Optional[_Union[_telemetry_pb2.FieldReport, _Mapping]] = ...) -> None: ...

class StatementStored(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class Recall(_message.Message):
    __slots__ = ("after", "roster_generation")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    ROSTER_GENERATION_FIELD_NUMBER: _ClassVar[int]
    after: str
    roster_generation: int
    def __init__(self, after: _Optional[str] = ..., roster_generation: _Optional[int] = ...) -> None: ...

class Begin(_message.Message):
    __slots__ = ("windows", "rounds")
    class WindowsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    windows: _containers.ScalarMap[str, bytes]
    rounds: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, windows: _Optional[_Mapping[str, bytes]] = ..., rounds: _Optional[_Iterable[int]] = ...) -> None: ...

class Kept(_message.Message):
    __slots__ = ("positions",)
    class PositionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.ScalarMap[str, str]
    def __init__(self, positions: _Optional[_Mapping[str, str]] = ...) -> None: ...

class RoundApplied(_message.Message):
    __slots__ = ("round", "receipts")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    round: int
    receipts: _containers.RepeatedCompositeFieldContainer[_commands_pb2.CommandReceipt]
    def __init__(self, round: _Optional[int] = ..., receipts: _Optional[_Iterable[_Union[_commands_pb2.CommandReceipt, _Mapping]]] = ...) -> None: ...

class TelemetryRows(_message.Message):
    __slots__ = ("incarnation", "first_sequence", "names", "timestamp_ns", "global_step", "values", "shed", "events", "level")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_NS_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    SHED_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    first_sequence: int
    names: _containers.RepeatedScalarFieldContainer[str]
    timestamp_ns: _containers.RepeatedScalarFieldContainer[int]
    global_step: _containers.RepeatedScalarFieldContainer[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    shed: int
    events: _containers.RepeatedCompositeFieldContainer[RowEvent]
    level: _containers.RepeatedScalarFieldContainer[_enums_pb2.TelemetryLevel]
    def __init__(self, incarnation: _Optional[int] = ..., first_sequence: _Optional[int] = ..., names: _Optional[_Iterable[str]] = ..., timestamp_ns: _Optional[_Iterable[int]] = ..., global_step: _Optional[_Iterable[int]] = ..., values: _Optional[_Iterable[float]] = ..., shed: _Optional[int] = ..., events: _Optional[_Iterable[_Union[RowEvent, _Mapping]]] = ..., level: _Optional[_Iterable[_Union[_enums_pb2.TelemetryLevel, str]]] = ...) -> None: ...

class RowEvent(_message.Message):
    __slots__ = ("row", "level", "description", "attributes")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ROW_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    row: int
    level: _enums_pb2.TelemetryLevel
    description: str
    attributes: _containers.ScalarMap[str, str]
    def __init__(self, row: _Optional[int] = ..., level: _Optional[_Union[_enums_pb2.TelemetryLevel, str]] = ..., description: _Optional[str] = ..., attributes: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ReplayPlan(_message.Message):
    __slots__ = ("run_id", "worker", "rank", "world_size", "num_threads", "last_step", "orders", "verdicts", "judged")
    class VerdictsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _commands_pb2.CommandReceipt
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_commands_pb2.CommandReceipt, _Mapping]] = ...) -> None: ...
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_THREADS_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    ORDERS_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    JUDGED_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    worker: str
    rank: int
    world_size: int
    num_threads: int
    last_step: int
    orders: _containers.RepeatedCompositeFieldContainer[CommitOrder]
    verdicts: _containers.MessageMap[str, _commands_pb2.CommandReceipt]
    judged: _containers.RepeatedCompositeFieldContainer[_runs_pb2.RoundJudged]
    def __init__(self, run_id: _Optional[str] = ..., worker: _Optional[str] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., num_threads: _Optional[int] = ..., last_step: _Optional[int] = ..., orders: _Optional[_Iterable[_Union[CommitOrder, _Mapping]]] = ..., verdicts: _Optional[_Mapping[str, _commands_pb2.CommandReceipt]] = ..., judged: _Optional[_Iterable[_Union[_runs_pb2.RoundJudged, _Mapping]]] = ...) -> None: ...

class ReplayReport(_message.Message):
    __slots__ = ("began", "report", "differences", "judged_anew")
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    JUDGED_ANEW_FIELD_NUMBER: _ClassVar[int]
    began: _runs_pb2.RunBegan
    report: _barrier_pb2.WorkerReport
    differences: _containers.RepeatedScalarFieldContainer[str]
    judged_anew: int
    def __init__(self, began: _Optional[_Union[_runs_pb2.RunBegan, _Mapping]] = ..., report: _Optional[_Union[_barrier_pb2.WorkerReport, _Mapping]] = ..., differences: _Optional[_Iterable[str]] = ..., judged_anew: _Optional[int] = ...) -> None: ...
