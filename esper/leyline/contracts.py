"""Every message and enumeration of the wire under one import, under the names that the design documents use."""

from __future__ import annotations

from esper.leyline.v1.barrier_pb2 import (
    BarrierAbort as BarrierAbort,
    BarrierCommit as BarrierCommit,
    BarrierProposal as BarrierProposal,
    BarrierVote as BarrierVote,
    CommittedCommand as CommittedCommand,
    Heartbeat as Heartbeat,
    PairedGain as PairedGain,
    SeedReport as SeedReport,
    SeedRequest as SeedRequest,
    SnapshotRef as SnapshotRef,
    StageRecord as StageRecord,
    WorkerReport as WorkerReport,
)
from esper.leyline.v1.commands_pb2 import (
    AdaptationCommand as AdaptationCommand,
    CircuitBreakerCommand as CircuitBreakerCommand,
    CommandReceipt as CommandReceipt,
    EmergencyCommand as EmergencyCommand,
    OptimizerAdjustment as OptimizerAdjustment,
    OptimizerCommand as OptimizerCommand,
    PauseCommand as PauseCommand,
    RollbackCommand as RollbackCommand,
    SeedCommand as SeedCommand,
)
from esper.leyline.v1.enums_pb2 import (
    AlphaCurve as AlphaCurve,
    BlueprintTier as BlueprintTier,
    BusyWith as BusyWith,
    CircuitBreakerState as CircuitBreakerState,
    CommandType as CommandType,
    EmergencyLevel as EmergencyLevel,
    FieldReportOutcome as FieldReportOutcome,
    HealthStatus as HealthStatus,
    MessagePriority as MessagePriority,
    MetricType as MetricType,
    OptimizerCommandType as OptimizerCommandType,
    PruningMaskType as PruningMaskType,
    PruningPhase as PruningPhase,
    ReasonCode as ReasonCode,
    ReceiptStatus as ReceiptStatus,
    SeedLifecycleGate as SeedLifecycleGate,
    SeedLifecycleStage as SeedLifecycleStage,
    SeedOperation as SeedOperation,
    TelemetryLevel as TelemetryLevel,
)
from esper.leyline.v1.kernels_pb2 import (
    BlueprintParameter as BlueprintParameter,
    KernelArtifactError as KernelArtifactError,
    KernelArtifactReady as KernelArtifactReady,
    KernelCatalogUpdate as KernelCatalogUpdate,
    KernelManifest as KernelManifest,
    KernelPrefetchRequest as KernelPrefetchRequest,
)
from esper.leyline.v1.link_pb2 import (
    CommitOrder as CommitOrder,
    OpenedCommand as OpenedCommand,
    ReplayPlan as ReplayPlan,
    ReplayReport as ReplayReport,
    ReportStored as ReportStored,
    RoundApplied as RoundApplied,
    RowEvent as RowEvent,
    RowsStored as RowsStored,
    RuntimeFailed as RuntimeFailed,
    RuntimeReady as RuntimeReady,
    TelemetryRows as TelemetryRows,
    ToRuntime as ToRuntime,
    ToTrainer as ToTrainer,
)
from esper.leyline.v1.pruning_pb2 import (
    ChannelImportance as ChannelImportance,
    PruningMask as PruningMask,
    StructuralPruningRequest as StructuralPruningRequest,
    StructuralPruningResponse as StructuralPruningResponse,
)
from esper.leyline.v1.runs_pb2 import (
    RoundJudged as RoundJudged,
    RunBegan as RunBegan,
    RunEnded as RunEnded,
    RunRecord as RunRecord,
)
from esper.leyline.v1.telemetry_pb2 import (
    AggregatedTelemetry as AggregatedTelemetry,
    ColumnarFrame as ColumnarFrame,
    EmergencySignal as EmergencySignal,
    FieldReport as FieldReport,
    HardwareContext as HardwareContext,
    MetricPoint as MetricPoint,
    MetricSchema as MetricSchema,
    MetricStatistics as MetricStatistics,
    SeedState as SeedState,
    SystemHealth as SystemHealth,
    SystemStatePacket as SystemStatePacket,
    TelemetryEvent as TelemetryEvent,
    TelemetryFrame as TelemetryFrame,
    TelemetryPacket as TelemetryPacket,
)
