from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor

class SeedLifecycleStage(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEED_STAGE_UNKNOWN: _ClassVar[SeedLifecycleStage]
    SEED_STAGE_DORMANT: _ClassVar[SeedLifecycleStage]
    SEED_STAGE_GERMINATED: _ClassVar[SeedLifecycleStage]
    SEED_STAGE_TRAINING: _ClassVar[SeedLifecycleStage]
    SEED_STAGE_BLENDING: _ClassVar[SeedLifecycleStage]
    SEED_STAGE_SHADOWING: _ClassVar[SeedLifecycleStage]
    SEED_STAGE_PROBATIONARY: _ClassVar[SeedLifecycleStage]
    SEED_STAGE_FOSSILIZED: _ClassVar[SeedLifecycleStage]
    SEED_STAGE_CULLED: _ClassVar[SeedLifecycleStage]
    SEED_STAGE_EMBARGOED: _ClassVar[SeedLifecycleStage]
    SEED_STAGE_RESETTING: _ClassVar[SeedLifecycleStage]
    SEED_STAGE_TERMINATED: _ClassVar[SeedLifecycleStage]

class SeedLifecycleGate(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEED_GATE_UNKNOWN: _ClassVar[SeedLifecycleGate]
    SEED_GATE_G0_SANITY: _ClassVar[SeedLifecycleGate]
    SEED_GATE_G1_GRADIENT_HEALTH: _ClassVar[SeedLifecycleGate]
    SEED_GATE_G2_STABILITY: _ClassVar[SeedLifecycleGate]
    SEED_GATE_G3_INTERFACE: _ClassVar[SeedLifecycleGate]
    SEED_GATE_G4_SYSTEM_IMPACT: _ClassVar[SeedLifecycleGate]
    SEED_GATE_G5_RESET: _ClassVar[SeedLifecycleGate]

class SeedOperation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEED_OP_UNKNOWN: _ClassVar[SeedOperation]
    SEED_OP_GERMINATE: _ClassVar[SeedOperation]
    SEED_OP_START_TRAINING: _ClassVar[SeedOperation]
    SEED_OP_START_GRAFTING: _ClassVar[SeedOperation]
    SEED_OP_STABILIZE: _ClassVar[SeedOperation]
    SEED_OP_EVALUATE: _ClassVar[SeedOperation]
    SEED_OP_FINE_TUNE: _ClassVar[SeedOperation]
    SEED_OP_FOSSILIZE: _ClassVar[SeedOperation]
    SEED_OP_CULL: _ClassVar[SeedOperation]
    SEED_OP_CANCEL: _ClassVar[SeedOperation]
    SEED_OP_RESET: _ClassVar[SeedOperation]
    SEED_OP_TERMINATE: _ClassVar[SeedOperation]
    SEED_OP_SET_ALPHA_TARGET: _ClassVar[SeedOperation]

class CommandType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMMAND_UNKNOWN: _ClassVar[CommandType]
    COMMAND_SEED: _ClassVar[CommandType]
    COMMAND_ROLLBACK: _ClassVar[CommandType]
    COMMAND_OPTIMIZER: _ClassVar[CommandType]
    COMMAND_CIRCUIT_BREAKER: _ClassVar[CommandType]
    COMMAND_PAUSE: _ClassVar[CommandType]
    COMMAND_EMERGENCY: _ClassVar[CommandType]
    COMMAND_STRUCTURAL_PRUNING: _ClassVar[CommandType]
    COMMAND_PRUNING_MASKS: _ClassVar[CommandType]

class OptimizerCommandType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPTIMIZER_COMMAND_UNKNOWN: _ClassVar[OptimizerCommandType]
    OPTIMIZER_COMMAND_INITIALIZE_HOST: _ClassVar[OptimizerCommandType]
    OPTIMIZER_COMMAND_CREATE_SEED: _ClassVar[OptimizerCommandType]
    OPTIMIZER_COMMAND_STEP: _ClassVar[OptimizerCommandType]
    OPTIMIZER_COMMAND_RESET_STATE: _ClassVar[OptimizerCommandType]
    OPTIMIZER_COMMAND_REGISTER_TEACHER: _ClassVar[OptimizerCommandType]

class MessagePriority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_PRIORITY_UNKNOWN: _ClassVar[MessagePriority]
    MESSAGE_PRIORITY_LOW: _ClassVar[MessagePriority]
    MESSAGE_PRIORITY_NORMAL: _ClassVar[MessagePriority]
    MESSAGE_PRIORITY_HIGH: _ClassVar[MessagePriority]
    MESSAGE_PRIORITY_CRITICAL: _ClassVar[MessagePriority]

class HealthStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HEALTH_UNKNOWN: _ClassVar[HealthStatus]
    HEALTH_HEALTHY: _ClassVar[HealthStatus]
    HEALTH_DEGRADED: _ClassVar[HealthStatus]
    HEALTH_UNHEALTHY: _ClassVar[HealthStatus]
    HEALTH_CRITICAL: _ClassVar[HealthStatus]

class CircuitBreakerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BREAKER_UNKNOWN: _ClassVar[CircuitBreakerState]
    BREAKER_CLOSED: _ClassVar[CircuitBreakerState]
    BREAKER_OPEN: _ClassVar[CircuitBreakerState]
    BREAKER_HALF_OPEN: _ClassVar[CircuitBreakerState]

class EmergencyLevel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EMERGENCY_UNKNOWN: _ClassVar[EmergencyLevel]
    EMERGENCY_NOTICE: _ClassVar[EmergencyLevel]
    EMERGENCY_ELEVATED: _ClassVar[EmergencyLevel]
    EMERGENCY_CONSERVATIVE: _ClassVar[EmergencyLevel]
    EMERGENCY_HALT: _ClassVar[EmergencyLevel]

class TelemetryLevel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TELEMETRY_UNKNOWN: _ClassVar[TelemetryLevel]
    TELEMETRY_INFO: _ClassVar[TelemetryLevel]
    TELEMETRY_WARNING: _ClassVar[TelemetryLevel]
    TELEMETRY_ERROR: _ClassVar[TelemetryLevel]
    TELEMETRY_CRITICAL: _ClassVar[TelemetryLevel]
    TELEMETRY_DEBUG: _ClassVar[TelemetryLevel]

class MetricType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    METRIC_UNKNOWN: _ClassVar[MetricType]
    METRIC_GAUGE: _ClassVar[MetricType]
    METRIC_COUNTER: _ClassVar[MetricType]
    METRIC_HISTOGRAM: _ClassVar[MetricType]

class ReceiptStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECEIPT_UNKNOWN: _ClassVar[ReceiptStatus]
    RECEIPT_ACCEPTED: _ClassVar[ReceiptStatus]
    RECEIPT_REJECTED: _ClassVar[ReceiptStatus]
    RECEIPT_APPLIED: _ClassVar[ReceiptStatus]
    RECEIPT_FAILED: _ClassVar[ReceiptStatus]

class ReasonCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_NONE: _ClassVar[ReasonCode]
    REASON_OVERSIZE: _ClassVar[ReasonCode]
    REASON_MALFORMED: _ClassVar[ReasonCode]
    REASON_UNKNOWN_KEY: _ClassVar[ReasonCode]
    REASON_BAD_SEAL: _ClassVar[ReasonCode]
    REASON_WRONG_CONTEXT: _ClassVar[ReasonCode]
    REASON_STALE: _ClassVar[ReasonCode]
    REASON_FROM_THE_FUTURE: _ClassVar[ReasonCode]
    REASON_REPLAYED: _ClassVar[ReasonCode]
    REASON_DUPLICATE: _ClassVar[ReasonCode]
    REASON_WRONG_TYPE: _ClassVar[ReasonCode]
    REASON_WRONG_VERSION: _ClassVar[ReasonCode]
    REASON_OUT_OF_RANGE: _ClassVar[ReasonCode]
    REASON_PAST_DEADLINE: _ClassVar[ReasonCode]
    REASON_POISON: _ClassVar[ReasonCode]
    REASON_UNKNOWN_SEED: _ClassVar[ReasonCode]
    REASON_UNKNOWN_SITE: _ClassVar[ReasonCode]
    REASON_UNKNOWN_BLUEPRINT: _ClassVar[ReasonCode]
    REASON_UNKNOWN_PARAMETER: _ClassVar[ReasonCode]
    REASON_ILLEGAL_TRANSITION: _ClassVar[ReasonCode]
    REASON_SITE_TAKEN: _ClassVar[ReasonCode]
    REASON_EMBARGOED: _ClassVar[ReasonCode]
    REASON_UNKNOWN_OPTIMIZER: _ClassVar[ReasonCode]
    REASON_WRONG_GENERATION: _ClassVar[ReasonCode]
    REASON_NO_SNAPSHOT: _ClassVar[ReasonCode]
    REASON_NOT_SUPPORTED: _ClassVar[ReasonCode]
    REASON_UNEXPECTED_STEP: _ClassVar[ReasonCode]
    REASON_GATE_FAILED: _ClassVar[ReasonCode]
    REASON_NON_FINITE: _ClassVar[ReasonCode]
    REASON_BREAKER_OPEN: _ClassVar[ReasonCode]
    REASON_CANCELLED: _ClassVar[ReasonCode]
    REASON_CULLED: _ClassVar[ReasonCode]
    REASON_ROLLED_BACK: _ClassVar[ReasonCode]
    REASON_TEACHER_REFUSED: _ClassVar[ReasonCode]
    REASON_TIMEOUT: _ClassVar[ReasonCode]
    REASON_ROSTER_CHANGED: _ClassVar[ReasonCode]

class AlphaCurve(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ALPHA_CURVE_UNKNOWN: _ClassVar[AlphaCurve]
    ALPHA_CURVE_LINEAR: _ClassVar[AlphaCurve]
    ALPHA_CURVE_COSINE: _ClassVar[AlphaCurve]
    ALPHA_CURVE_SIGMOID: _ClassVar[AlphaCurve]

class FieldReportOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FIELD_REPORT_UNKNOWN: _ClassVar[FieldReportOutcome]
    FIELD_REPORT_SUCCESS: _ClassVar[FieldReportOutcome]
    FIELD_REPORT_NEUTRAL: _ClassVar[FieldReportOutcome]
    FIELD_REPORT_REGRESSION: _ClassVar[FieldReportOutcome]
    FIELD_REPORT_ABORTED: _ClassVar[FieldReportOutcome]

class BlueprintTier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BLUEPRINT_TIER_UNKNOWN: _ClassVar[BlueprintTier]
    BLUEPRINT_TIER_SAFE: _ClassVar[BlueprintTier]
    BLUEPRINT_TIER_EXPERIMENTAL: _ClassVar[BlueprintTier]
    BLUEPRINT_TIER_HIGH_RISK: _ClassVar[BlueprintTier]

class BusyWith(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BUSY_NONE: _ClassVar[BusyWith]
    BUSY_COMPILE: _ClassVar[BusyWith]
    BUSY_CHECKPOINT: _ClassVar[BusyWith]
    BUSY_EVALUATE: _ClassVar[BusyWith]
    BUSY_PAUSED: _ClassVar[BusyWith]

class PruningPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRUNING_PHASE_UNKNOWN: _ClassVar[PruningPhase]
    PRUNING_PHASE_VALIDATION_ONLY: _ClassVar[PruningPhase]
    PRUNING_PHASE_ACTIVE: _ClassVar[PruningPhase]
    PRUNING_PHASE_DISABLED: _ClassVar[PruningPhase]

class PruningMaskType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRUNING_MASK_UNKNOWN: _ClassVar[PruningMaskType]
    PRUNING_MASK_CHANNEL: _ClassVar[PruningMaskType]
    PRUNING_MASK_ATTENTION_HEAD: _ClassVar[PruningMaskType]
    PRUNING_MASK_LAYER: _ClassVar[PruningMaskType]
    PRUNING_MASK_UNSTRUCTURED: _ClassVar[PruningMaskType]
SEED_STAGE_UNKNOWN: SeedLifecycleStage
SEED_STAGE_DORMANT: SeedLifecycleStage
SEED_STAGE_GERMINATED: SeedLifecycleStage
SEED_STAGE_TRAINING: SeedLifecycleStage
SEED_STAGE_BLENDING: SeedLifecycleStage
SEED_STAGE_SHADOWING: SeedLifecycleStage
SEED_STAGE_PROBATIONARY: SeedLifecycleStage
SEED_STAGE_FOSSILIZED: SeedLifecycleStage
SEED_STAGE_CULLED: SeedLifecycleStage
SEED_STAGE_EMBARGOED: SeedLifecycleStage
SEED_STAGE_RESETTING: SeedLifecycleStage
SEED_STAGE_TERMINATED: SeedLifecycleStage
SEED_GATE_UNKNOWN: SeedLifecycleGate
SEED_GATE_G0_SANITY: SeedLifecycleGate
SEED_GATE_G1_GRADIENT_HEALTH: SeedLifecycleGate
SEED_GATE_G2_STABILITY: SeedLifecycleGate
SEED_GATE_G3_INTERFACE: SeedLifecycleGate
SEED_GATE_G4_SYSTEM_IMPACT: SeedLifecycleGate
SEED_GATE_G5_RESET: SeedLifecycleGate
SEED_OP_UNKNOWN: SeedOperation
SEED_OP_GERMINATE: SeedOperation
SEED_OP_START_TRAINING: SeedOperation
SEED_OP_START_GRAFTING: SeedOperation
SEED_OP_STABILIZE: SeedOperation
SEED_OP_EVALUATE: SeedOperation
SEED_OP_FINE_TUNE: SeedOperation
SEED_OP_FOSSILIZE: SeedOperation
SEED_OP_CULL: SeedOperation
SEED_OP_CANCEL: SeedOperation
SEED_OP_RESET: SeedOperation
SEED_OP_TERMINATE: SeedOperation
SEED_OP_SET_ALPHA_TARGET: SeedOperation
COMMAND_UNKNOWN: CommandType
COMMAND_SEED: CommandType
COMMAND_ROLLBACK: CommandType
COMMAND_OPTIMIZER: CommandType
COMMAND_CIRCUIT_BREAKER: CommandType
COMMAND_PAUSE: CommandType
COMMAND_EMERGENCY: CommandType
COMMAND_STRUCTURAL_PRUNING: CommandType
COMMAND_PRUNING_MASKS: CommandType
OPTIMIZER_COMMAND_UNKNOWN: OptimizerCommandType
OPTIMIZER_COMMAND_INITIALIZE_HOST: OptimizerCommandType
OPTIMIZER_COMMAND_CREATE_SEED: OptimizerCommandType
OPTIMIZER_COMMAND_STEP: OptimizerCommandType
OPTIMIZER_COMMAND_RESET_STATE: OptimizerCommandType
OPTIMIZER_COMMAND_REGISTER_TEACHER: OptimizerCommandType
MESSAGE_PRIORITY_UNKNOWN: MessagePriority
MESSAGE_PRIORITY_LOW: MessagePriority
MESSAGE_PRIORITY_NORMAL: MessagePriority
MESSAGE_PRIORITY_HIGH: MessagePriority
MESSAGE_PRIORITY_CRITICAL: MessagePriority
HEALTH_UNKNOWN: HealthStatus
HEALTH_HEALTHY: HealthStatus
HEALTH_DEGRADED: HealthStatus
HEALTH_UNHEALTHY: HealthStatus
HEALTH_CRITICAL: HealthStatus
BREAKER_UNKNOWN: CircuitBreakerState
BREAKER_CLOSED: CircuitBreakerState
BREAKER_OPEN: CircuitBreakerState
BREAKER_HALF_OPEN: CircuitBreakerState
EMERGENCY_UNKNOWN: EmergencyLevel
EMERGENCY_NOTICE: EmergencyLevel
EMERGENCY_ELEVATED: EmergencyLevel
EMERGENCY_CONSERVATIVE: EmergencyLevel
EMERGENCY_HALT: EmergencyLevel
TELEMETRY_UNKNOWN: TelemetryLevel
TELEMETRY_INFO: TelemetryLevel
TELEMETRY_WARNING: TelemetryLevel
TELEMETRY_ERROR: TelemetryLevel
TELEMETRY_CRITICAL: TelemetryLevel
TELEMETRY_DEBUG: TelemetryLevel
METRIC_UNKNOWN: MetricType
METRIC_GAUGE: MetricType
METRIC_COUNTER: MetricType
METRIC_HISTOGRAM: MetricType
RECEIPT_UNKNOWN: ReceiptStatus
RECEIPT_ACCEPTED: ReceiptStatus
RECEIPT_REJECTED: ReceiptStatus
RECEIPT_APPLIED: ReceiptStatus
RECEIPT_FAILED: ReceiptStatus
REASON_NONE: ReasonCode
REASON_OVERSIZE: ReasonCode
REASON_MALFORMED: ReasonCode
REASON_UNKNOWN_KEY: ReasonCode
REASON_BAD_SEAL: ReasonCode
REASON_WRONG_CONTEXT: ReasonCode
REASON_STALE: ReasonCode
REASON_FROM_THE_FUTURE: ReasonCode
REASON_REPLAYED: ReasonCode
REASON_DUPLICATE: ReasonCode
REASON_WRONG_TYPE: ReasonCode
REASON_WRONG_VERSION: ReasonCode
REASON_OUT_OF_RANGE: ReasonCode
REASON_PAST_DEADLINE: ReasonCode
REASON_POISON: ReasonCode
REASON_UNKNOWN_SEED: ReasonCode
REASON_UNKNOWN_SITE: ReasonCode
REASON_UNKNOWN_BLUEPRINT: ReasonCode
REASON_UNKNOWN_PARAMETER: ReasonCode
REASON_ILLEGAL_TRANSITION: ReasonCode
REASON_SITE_TAKEN: ReasonCode
REASON_EMBARGOED: ReasonCode
REASON_UNKNOWN_OPTIMIZER: ReasonCode
REASON_WRONG_GENERATION: ReasonCode
REASON_NO_SNAPSHOT: ReasonCode
REASON_NOT_SUPPORTED: ReasonCode
REASON_UNEXPECTED_STEP: ReasonCode
REASON_GATE_FAILED: ReasonCode
REASON_NON_FINITE: ReasonCode
REASON_BREAKER_OPEN: ReasonCode
REASON_CANCELLED: ReasonCode
REASON_CULLED: ReasonCode
REASON_ROLLED_BACK: ReasonCode
REASON_TEACHER_REFUSED: ReasonCode
REASON_TIMEOUT: ReasonCode
REASON_ROSTER_CHANGED: ReasonCode
ALPHA_CURVE_UNKNOWN: AlphaCurve
ALPHA_CURVE_LINEAR: AlphaCurve
ALPHA_CURVE_COSINE: AlphaCurve
ALPHA_CURVE_SIGMOID: AlphaCurve
FIELD_REPORT_UNKNOWN: FieldReportOutcome
FIELD_REPORT_SUCCESS: FieldReportOutcome
FIELD_REPORT_NEUTRAL: FieldReportOutcome
FIELD_REPORT_REGRESSION: FieldReportOutcome
FIELD_REPORT_ABORTED: FieldReportOutcome
BLUEPRINT_TIER_UNKNOWN: BlueprintTier
BLUEPRINT_TIER_SAFE: BlueprintTier
BLUEPRINT_TIER_EXPERIMENTAL: BlueprintTier
BLUEPRINT_TIER_HIGH_RISK: BlueprintTier
BUSY_NONE: BusyWith
BUSY_COMPILE: BusyWith
BUSY_CHECKPOINT: BusyWith
BUSY_EVALUATE: BusyWith
BUSY_PAUSED: BusyWith
PRUNING_PHASE_UNKNOWN: PruningPhase
PRUNING_PHASE_VALIDATION_ONLY: PruningPhase
PRUNING_PHASE_ACTIVE: PruningPhase
PRUNING_PHASE_DISABLED: PruningPhase
PRUNING_MASK_UNKNOWN: PruningMaskType
PRUNING_MASK_CHANNEL: PruningMaskType
PRUNING_MASK_ATTENTION_HEAD: PruningMaskType
PRUNING_MASK_LAYER: PruningMaskType
PRUNING_MASK_UNSTRUCTURED: PruningMaskType
