from esper.leyline.v1 import enums_pb2 as _enums_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MetricPoint(_message.Message):
    __slots__ = ("name", "value", "type", "unit", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    type: _enums_pb2.MetricType
    unit: str
    labels: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ..., type: _Optional[_Union[_enums_pb2.MetricType, str]] = ..., unit: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class TelemetryEvent(_message.Message):
    __slots__ = ("event_id", "description", "level", "attributes")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    event_id: str
    description: str
    level: _enums_pb2.TelemetryLevel
    attributes: _containers.ScalarMap[str, str]
    def __init__(self, event_id: _Optional[str] = ..., description: _Optional[str] = ..., level: _Optional[_Union[_enums_pb2.TelemetryLevel, str]] = ..., attributes: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SystemHealth(_message.Message):
    __slots__ = ("status", "memory_used_gb", "cpu_percent")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_GB_FIELD_NUMBER: _ClassVar[int]
    CPU_PERCENT_FIELD_NUMBER: _ClassVar[int]
    status: _enums_pb2.HealthStatus
    memory_used_gb: float
    cpu_percent: float
    def __init__(self, status: _Optional[_Union[_enums_pb2.HealthStatus, str]] = ..., memory_used_gb: _Optional[float] = ..., cpu_percent: _Optional[float] = ...) -> None: ...

class TelemetryPacket(_message.Message):
    __slots__ = ("version", "packet_id", "timestamp_ns", "source_subsystem", "level", "sequence", "global_step", "values", "metrics", "events", "system_health")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PACKET_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_NS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_SUBSYSTEM_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_HEALTH_FIELD_NUMBER: _ClassVar[int]
    version: int
    packet_id: str
    timestamp_ns: int
    source_subsystem: str
    level: _enums_pb2.TelemetryLevel
    sequence: int
    global_step: int
    values: _containers.ScalarMap[str, float]
    metrics: _containers.RepeatedCompositeFieldContainer[MetricPoint]
    events: _containers.RepeatedCompositeFieldContainer[TelemetryEvent]
    system_health: SystemHealth
    def __init__(self, version: _Optional[int] = ..., packet_id: _Optional[str] = ..., timestamp_ns: _Optional[int] = ..., source_subsystem: _Optional[str] = ..., level: _Optional[_Union[_enums_pb2.TelemetryLevel, str]] = ..., sequence: _Optional[int] = ..., global_step: _Optional[int] = ..., values: _Optional[_Mapping[str, float]] = ..., metrics: _Optional[_Iterable[_Union[MetricPoint, _Mapping]]] = ..., events: _Optional[_Iterable[_Union[TelemetryEvent, _Mapping]]] = ..., system_health: _Optional[_Union[SystemHealth, _Mapping]] = ...) -> None: ...

class TelemetryFrame(_message.Message):
    __slots__ = ("version", "source", "incarnation", "region", "packets", "shed")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    SHED_FIELD_NUMBER: _ClassVar[int]
    version: int
    source: str
    incarnation: int
    region: str
    packets: _containers.RepeatedCompositeFieldContainer[TelemetryPacket]
    shed: int
    def __init__(self, version: _Optional[int] = ..., source: _Optional[str] = ..., incarnation: _Optional[int] = ..., region: _Optional[str] = ..., packets: _Optional[_Iterable[_Union[TelemetryPacket, _Mapping]]] = ..., shed: _Optional[int] = ...) -> None: ...

class MetricSchema(_message.Message):
    __slots__ = ("version", "names", "units")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    version: int
    names: _containers.RepeatedScalarFieldContainer[str]
    units: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[int] = ..., names: _Optional[_Iterable[str]] = ..., units: _Optional[_Iterable[str]] = ...) -> None: ...

class ColumnarFrame(_message.Message):
    __slots__ = ("version", "source", "incarnation", "first_sequence", "schema", "region", "level", "shed", "timestamp_ns", "global_step", "values")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    SHED_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_NS_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    version: int
    source: str
    incarnation: int
    first_sequence: int
    schema: MetricSchema
    region: str
    level: _enums_pb2.TelemetryLevel
    shed: int
    timestamp_ns: bytes
    global_step: bytes
    values: bytes
    def __init__(self, version: _Optional[int] = ..., source: _Optional[str] = ..., incarnation: _Optional[int] = ..., first_sequence: _Optional[int] = ..., schema: _Optional[_Union[MetricSchema, _Mapping]] = ..., region: _Optional[str] = ..., level: _Optional[_Union[_enums_pb2.TelemetryLevel, str]] = ..., shed: _Optional[int] = ..., timestamp_ns: _Optional[bytes] = ..., global_step: _Optional[bytes] = ..., values: _Optional[bytes] = ...) -> None: ...

class MetricStatistics(_message.Message):
    __slots__ = ("count", "sum", "mean", "m2", "min", "max", "last", "last_timestamp_ns", "last_source", "last_sequence", "sketch", "num_non_finite")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    M2_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    LAST_TIMESTAMP_NS_FIELD_NUMBER: _ClassVar[int]
    LAST_SOURCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SKETCH_FIELD_NUMBER: _ClassVar[int]
    NUM_NON_FINITE_FIELD_NUMBER: _ClassVar[int]
    count: int
    sum: float
    mean: float
    m2: float
    min: float
    max: float
    last: float
    last_timestamp_ns: int
    last_source: str
    last_sequence: int
    sketch: bytes
    num_non_finite: int
    def __init__(self, count: _Optional[int] = ..., sum: _Optional[float] = ..., mean: _Optional[float] = ..., m2: _Optional[float] = ..., min: _Optional[float] = ..., max: _Optional[float] = ..., last: _Optional[float] = ..., last_timestamp_ns: _Optional[int] = ..., last_source: _Optional[str] = ..., last_sequence: _Optional[int] = ..., sketch: _Optional[bytes] = ..., num_non_finite: _Optional[int] = ...) -> None: ...

class AggregatedTelemetry(_message.Message):
    __slots__ = ("version", "region", "sequence", "num_packets", "num_messages", "partial", "first_timestamp_ns", "last_timestamp_ns", "max_step", "metrics", "num_duplicates", "num_gaps", "num_shed", "level_counts", "events", "num_out_of_order", "num_late", "num_skewed")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: MetricStatistics
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[MetricStatistics, _Mapping]] = ...) -> None: ...
    class LevelCountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NUM_PACKETS_FIELD_NUMBER: _ClassVar[int]
    NUM_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    FIRST_TIMESTAMP_NS_FIELD_NUMBER: _ClassVar[int]
    LAST_TIMESTAMP_NS_FIELD_NUMBER: _ClassVar[int]
    MAX_STEP_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    NUM_DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    NUM_GAPS_FIELD_NUMBER: _ClassVar[int]
    NUM_SHED_FIELD_NUMBER: _ClassVar[int]
    LEVEL_COUNTS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NUM_OUT_OF_ORDER_FIELD_NUMBER: _ClassVar[int]
    NUM_LATE_FIELD_NUMBER: _ClassVar[int]
    NUM_SKEWED_FIELD_NUMBER: _ClassVar[int]
    version: int
    region: str
    sequence: int
    num_packets: int
    num_messages: int
    partial: bool
    first_timestamp_ns: int
    last_timestamp_ns: int
    max_step: int
    metrics: _containers.MessageMap[str, MetricStatistics]
    num_duplicates: int
    num_gaps: int
    num_shed: int
    level_counts: _containers.ScalarMap[str, int]
    events: _containers.RepeatedCompositeFieldContainer[TelemetryEvent]
    num_out_of_order: int
    num_late: int
    num_skewed: int
    def __init__(self, version: _Optional[int] = ..., region: _Optional[str] = ..., sequence: _Optional[int] = ..., num_packets: _Optional[int] = ..., num_messages: _Optional[int] = ..., partial: _Optional[bool] = ..., first_timestamp_ns: _Optional[int] = ..., last_timestamp_ns: _Optional[int] = ..., max_step: _Optional[int] = ..., metrics: _Optional[_Mapping[str, MetricStatistics]] = ..., num_duplicates: _Optional[int] = ..., num_gaps: _Optional[int] = ..., num_shed: _Optional[int] = ..., level_counts: _Optional[_Mapping[str, int]] = ..., events: _Optional[_Iterable[_Union[TelemetryEvent, _Mapping]]] = ..., num_out_of_order: _Optional[int] = ..., num_late: _Optional[int] = ..., num_skewed: _Optional[int] = ...) -> None: ...

class HardwareContext(_message.Message):
    __slots__ = ("device_type", "device_id", "total_memory_gb", "available_memory_gb", "temperature_celsius", "utilization_percent", "compute_capability")
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MEMORY_GB_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_MEMORY_GB_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_CELSIUS_FIELD_NUMBER: _ClassVar[int]
    UTILIZATION_PERCENT_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    device_type: str
    device_id: str
    total_memory_gb: float
    available_memory_gb: float
    temperature_celsius: float
    utilization_percent: float
    compute_capability: str
    def __init__(self, device_type: _Optional[str] = ..., device_id: _Optional[str] = ..., total_memory_gb: _Optional[float] = ..., available_memory_gb: _Optional[float] = ..., temperature_celsius: _Optional[float] = ..., utilization_percent: _Optional[float] = ..., compute_capability: _Optional[str] = ...) -> None: ...

class SeedState(_message.Message):
    __slots__ = ("seed_id", "stage", "gradient_norm", "learning_rate", "layer_depth", "metrics", "age_epochs", "risk_score", "site", "blueprint_id", "alpha", "stage_since_step", "embargo_until_epoch", "generation", "paused")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    SEED_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_NORM_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    LAYER_DEPTH_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    AGE_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    RISK_SCORE_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    BLUEPRINT_ID_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    STAGE_SINCE_STEP_FIELD_NUMBER: _ClassVar[int]
    EMBARGO_UNTIL_EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    seed_id: str
    stage: _enums_pb2.SeedLifecycleStage
    gradient_norm: float
    learning_rate: float
    layer_depth: int
    metrics: _containers.ScalarMap[str, float]
    age_epochs: int
    risk_score: float
    site: str
    blueprint_id: str
    alpha: float
    stage_since_step: int
    embargo_until_epoch: int
    generation: int
    paused: bool
    def __init__(self, seed_id: _Optional[str] = ..., stage: _Optional[_Union[_enums_pb2.SeedLifecycleStage, str]] = ..., gradient_norm: _Optional[float] = ..., learning_rate: _Optional[float] = ..., layer_depth: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ..., age_epochs: _Optional[int] = ..., risk_score: _Optional[float] = ..., site: _Optional[str] = ..., blueprint_id: _Optional[str] = ..., alpha: _Optional[float] = ..., stage_since_step: _Optional[int] = ..., embargo_until_epoch: _Optional[int] = ..., generation: _Optional[int] = ..., paused: _Optional[bool] = ...) -> None: ...

class SystemStatePacket(_message.Message):
    __slots__ = ("version", "current_epoch", "validation_accuracy", "validation_loss", "timestamp_ns", "hardware_context", "training_metrics", "seed_states", "packet_id", "global_step", "training_loss", "source_subsystem", "training_run_id", "experiment_name")
    class TrainingMetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CURRENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_ACCURACY_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_LOSS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_NS_FIELD_NUMBER: _ClassVar[int]
    HARDWARE_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    TRAINING_METRICS_FIELD_NUMBER: _ClassVar[int]
    SEED_STATES_FIELD_NUMBER: _ClassVar[int]
    PACKET_ID_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    TRAINING_LOSS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_SUBSYSTEM_FIELD_NUMBER: _ClassVar[int]
    TRAINING_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    EXPERIMENT_NAME_FIELD_NUMBER: _ClassVar[int]
    version: int
    current_epoch: int
    validation_accuracy: float
    validation_loss: float
    timestamp_ns: int
    hardware_context: HardwareContext
    training_metrics: _containers.ScalarMap[str, float]
    seed_states: _containers.RepeatedCompositeFieldContainer[SeedState]
    packet_id: str
    global_step: int
    training_loss: float
    source_subsystem: str
    training_run_id: str
    experiment_name: str
    def __init__(self, version: _Optional[int] = ..., current_epoch: _Optional[int] = ..., validation_accuracy: _Optional[float] = ..., validation_loss: _Optional[float] = ..., timestamp_ns: _Optional[int] = ..., hardware_context: _Optional[_Union[HardwareContext, _Mapping]] = ..., training_metrics: _Optional[_Mapping[str, float]] = ..., seed_states: _Optional[_Iterable[_Union[SeedState, _Mapping]]] = ..., packet_id: _Optional[str] = ..., global_step: _Optional[int] = ..., training_loss: _Optional[float] = ..., source_subsystem: _Optional[str] = ..., training_run_id: _Optional[str] = ..., experiment_name: _Optional[str] = ...) -> None: ...

class EmergencySignal(_message.Message):
    __slots__ = ("version", "level", "reason", "origin", "triggered_at_ns", "global_step", "packet_sequence", "attributes")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    TRIGGERED_AT_NS_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    PACKET_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    version: int
    level: _enums_pb2.EmergencyLevel
    reason: str
    origin: str
    triggered_at_ns: int
    global_step: int
    packet_sequence: int
    attributes: _containers.ScalarMap[str, str]
    def __init__(self, version: _Optional[int] = ..., level: _Optional[_Union[_enums_pb2.EmergencyLevel, str]] = ..., reason: _Optional[str] = ..., origin: _Optional[str] = ..., triggered_at_ns: _Optional[int] = ..., global_step: _Optional[int] = ..., packet_sequence: _Optional[int] = ..., attributes: _Optional[_Mapping[str, str]] = ...) -> None: ...

class FieldReport(_message.Message):
    __slots__ = ("version", "report_id", "seed_id", "blueprint_id", "outcome", "metrics", "observed_from_step", "observed_to_step", "site", "stage", "detail")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REPORT_ID_FIELD_NUMBER: _ClassVar[int]
    SEED_ID_FIELD_NUMBER: _ClassVar[int]
    BLUEPRINT_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_TO_STEP_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    version: int
    report_id: str
    seed_id: str
    blueprint_id: str
    outcome: _enums_pb2.FieldReportOutcome
    metrics: _containers.ScalarMap[str, float]
    observed_from_step: int
    observed_to_step: int
    site: str
    stage: _enums_pb2.SeedLifecycleStage
    detail: str
    def __init__(self, version: _Optional[int] = ..., report_id: _Optional[str] = ..., seed_id: _Optional[str] = ..., blueprint_id: _Optional[str] = ..., outcome: _Optional[_Union[_enums_pb2.FieldReportOutcome, str]] = ..., metrics: _Optional[_Mapping[str, float]] = ..., observed_from_step: _Optional[int] = ..., observed_to_step: _Optional[int] = ..., site: _Optional[str] = ..., stage: _Optional[_Union[_enums_pb2.SeedLifecycleStage, str]] = ..., detail: _Optional[str] = ...) -> None: ...
