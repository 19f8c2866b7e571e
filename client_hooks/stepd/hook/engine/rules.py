"""What the engine knows about op types, as data. Nothing here looks at a graph."""

from __future__ import annotations

# Sources of variables, and the ops that work on a variable in place and so live on its device.
VARIABLES = frozenset({"VarHandleOp", "VariableV2", "Variable"})
VARIABLE_OPS = frozenset({
    "ReadVariableOp", "VarIsInitializedOp", "VariableShape", "AssignVariableOp", "AssignAddVariableOp",
    "AssignSubVariableOp", "DestroyResourceOp", "ResourceGather", "ResourceGatherNd",
    "ResourceStridedSliceAssign", "ResourceCountUpTo",
    "Assign", "AssignAdd", "AssignSub", "IsVariableInitialized", "CountUpTo", "StridedSliceAssign",
})  # fmt: skip
VARIABLE_OP_PREFIXES = (
    "ResourceApply", "ResourceSparseApply", "ResourceScatter", "Apply", "SparseApply", "Scatter",
)  # fmt: skip

# With a state of their own, whether TensorFlow calls it one or not: a second node of the kind would begin again, wait for the
# first, or gather batches by itself.
SHARED = frozenset({
    "Batch", "BatchFunction", "Unbatch", "UnbatchGrad",
    "Placeholder", "PlaceholderV2", "PlaceholderWithDefault", "OneShotIterator", "RecordInput", "Skipgram",
    "NegTrain", "Stage", "Unstage", "StagePeek", "StageSize", "StageClear", "OrderedMapStage",
    "MapStage", "_Send", "_Recv", "_HostSend", "_HostRecv", "GetSessionHandle", "GetSessionHandleV2",
    "GetSessionTensor", "DeleteSessionTensor", "FakeQueue", "Bitcast_Stateful",
})  # fmt: skip
SHARED_PREFIXES = ("Collective", "Nccl", "MapUnstage", "MapPeek", "MapSize", "MapIncompleteSize", "MapClear",
                   "OrderedMap")  # fmt: skip

# Pools whose regions are drawn; those that are to be deterministic and have no seed draw them once for each kernel.
FRACTIONAL = frozenset({"FractionalMaxPool", "FractionalAvgPool"})

# Without state in TensorFlow's eyes, they write into the very memory of their first input; and what has memory of its own.
IN_PLACE = frozenset({"InplaceAdd", "InplaceSub", "InplaceUpdate"})
FRESH = frozenset({"DeepCopy", "Empty"})
# Writes a variable, but into memory that others may share: what else shares it keeps what was written, and the variable does not.
UNSHARED = frozenset({"StatefulRandomBinomial"})
# Give Python arrays that are the very memory of their inputs, and may be written.
PYTHON_ON_MEMORY = frozenset({"PyFunc", "PyFuncStateless"})

# Random, and in their kernels they keep more than the place in a stream.
LEARNING = frozenset({"LearnedUnigramCandidateSampler", "ThreadUnsafeUnigramCandidateSampler"})

# Stateful, but what they hold lives for one run only.
PER_RUN_PREFIXES = ("TensorArray", "Stack", "TemporaryVariable", "DestroyTemporaryVariable", "Anonymous")

# Without state in TensorFlow's eyes. Where all that they are given is constant they run once, when TensorFlow builds a step, for
# all its runs: of a step that is built anew they may give something else.
MADE_ONCE = frozenset({"MatchingFiles", "ReadFile", "GenerateVocabRemapping", "PyFuncStateless"})

# Of the inputs of these, one output has a value in a run.
SWITCHES = frozenset({"Switch", "RefSwitch", "_SwitchN"})
MERGES = frozenset({"Merge", "RefMerge"})

# Their kernels read a file when they are made: op -> what names it, and beginnings of names that stand for no file.
FILE_OF_KERNEL = {
    "DecodeProtoV2": ("descriptor_source", (b"local://", b"bytes://")),
    "EncodeProto": ("descriptor_source", (b"local://", b"bytes://")),
    "FixedUnigramCandidateSampler": ("vocab_file", ()),
    "ImmutableConst": ("memory_region_name", ()),
}

# What the executors of a step may keep from run to run, and other executors for the same step do not have.
KEPT_BY_EXECUTORS = MADE_ONCE | FILE_OF_KERNEL.keys() | IN_PLACE | UNSHARED

# Stateful towards the world, not in themselves: a second node does just what the first would have done.
WITHOUT_MEMORY = frozenset({
    "PyFunc", "EagerPyFunc", "PyFuncStateless", "Print", "PrintV2", "Assert", "Timestamp", "NoOp",
    "Save", "SaveV2", "SaveSlices", "Restore", "RestoreV2", "RestoreSlice", "MergeV2Checkpoints",
    "ShardedFilename", "ReadFile", "WriteFile", "MatchingFiles", "Abort", "AudioSummary", "TensorSummary",
    "DebugIdentity", "DebugIdentityV2", "CheckNumerics", "CheckNumericsV2", "ConsumeMutexLock", "Where",
    "LoadAndRemapMatrix", "GenerateVocabRemapping", "RunHandlerWithoutState",
})  # fmt: skip

# They give what they are given, or an error.
CHECKS = frozenset({"Assert", "CheckNumerics", "CheckNumericsV2"})

# Calls of functions that are inlined before they run.
INLINED = frozenset({"PartitionedCall", "StatefulPartitionedCall"})

# Not stateful, but tied to where they are.
UNMOVED = frozenset({"_Arg", "_Retval", "HostConst", "_HostCast", "PlaceholderWithDefault"})

CONTROL_FLOW = frozenset({
    "Switch", "RefSwitch", "_SwitchN", "Merge", "RefMerge", "Enter", "RefEnter", "Exit", "RefExit",
    "NextIteration", "RefNextIteration", "LoopCond", "ControlTrigger", "RefSelect", "_XlaMerge",
})  # fmt: skip

# Grappler joins neighbours of these kinds when they share a device, and the joined kernel may round differently:
# such a producer and its consumer move together or not at all.
# First: contractions with what the remapper fuses into them, whoever else reads the values (another step kind,
# without gradients, may be fused where a training step is not).
CONTRACTIONS = frozenset({
    "Conv2D", "Conv3D", "DepthwiseConv2dNative", "MatMul", "BatchMatMul", "BatchMatMulV2",
})  # fmt: skip
_EPILOGUES = frozenset({
    "BiasAdd", "BiasAddV1", "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "Relu", "Relu6", "Elu",
    "LeakyRelu", "Tanh", "Sigmoid",
})  # fmt: skip
_TERMS = frozenset({"Add", "AddV2", "Sub", "Mul"})
_BIASED = frozenset({"BiasAdd", "BiasAddV1", "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "Squeeze"})
_UNARY = frozenset({
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Expm1", "Exp", "Floor", "Log",
    "Log1p", "Neg", "Reciprocal", "Rint", "Round", "Rsqrt", "Sigmoid", "Sin", "Sinh", "Sqrt", "Square", "Tan", "Tanh",
    "Relu", "Relu6", "Elu",
})  # fmt: skip
# Functions of single elements: those of which every kernel gives the same bits, and all that Grappler takes out of the parts of a
# concatenation or of what a split gives.
EXACT = frozenset({
    "Abs", "Ceil", "ComplexAbs", "Conj", "Floor", "Invert", "IsFinite", "IsInf", "IsNan", "LogicalNot", "Neg", "Relu", "Relu6",
    "Rint", "Round", "Sign", "Sqrt", "Square",
})  # fmt: skip
_MONOTONIC = frozenset({
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Elu", "Erf", "Erfc", "Exp", "Expm1", "Floor", "Log", "Log1p",
    "Neg", "Relu", "Relu6", "Rint", "Rsqrt", "Selu", "Sigmoid", "Sign", "Sinh", "Softplus", "Softsign", "Sqrt", "Tanh",
})  # fmt: skip
PLACES = frozenset({"ArgMax", "ArgMin"})
SUMS_AND_DIFFERENCES = frozenset({"Add", "AddV2", "Sub"})
HOISTED = _UNARY | EXACT | {"Digamma", "Erf", "Erfc", "Inv", "Lgamma", "Selu", "Softplus", "Softsign"}
# The largest value of a monotonic function is that of the largest argument, which Grappler looks for instead. Where only its place
# is wanted the function becomes an Identity, of a wrong type: on a device apart from both neighbours it stays, and the whole step,
# which has no valid graph then, runs without Grappler.
FUSED = (
    (CONTRACTIONS, _EPILOGUES | _TERMS | {"Squeeze"}),
    (_BIASED, _EPILOGUES | _TERMS),
    (frozenset({"Pad"}), CONTRACTIONS),
    (_MONOTONIC, PLACES),
    (_MONOTONIC - EXACT, frozenset({"Max", "Min", "MaxPool", "MaxPoolV2", "MaxPool3D"})),
    (frozenset({"Softmax", "Add", "AddV2"}), frozenset({"Log"})),
    (frozenset({"AsString"}), frozenset({"StringToHashBucketFast"})),  # one op, the same
    (frozenset({"Neg"}), SUMS_AND_DIFFERENCES),  # the same but for the sign of what is no number
)  # fmt: skip
# Second: rewrites that need a value that nobody else reads: sums of sums become one AddN, common factors are hoisted,
# constants are pushed down, unary functions composed.
ARITHMETIC = _TERMS | {"AddN", "RealDiv", "Div", "Neg", "Reciprocal", "Inv"}
FUSED_IF_SOLE_READER = (
    (ARITHMETIC, ARITHMETIC | CONTRACTIONS | {"BiasAdd", "Log", "Sqrt", "Rsqrt"}),
    (_UNARY, _UNARY | {"Mul", "Sub", "RealDiv", "Div"}),
    (SUMS_AND_DIFFERENCES, _UNARY),
)  # fmt: skip

# Of these, chains of one op are put in another order, so that small operands meet first, in every step in which nobody else reads
# the inner products: in evaluations no gradient does. The gradient of a sum reads neither the sum nor its terms.
BROADCAST = frozenset({"Mul"})
# x / sqrt(y) becomes x * rsqrt(y) before that, and x / 3 becomes x * (1 / 3).
QUOTIENTS = frozenset({"RealDiv", "Div"})
SUMS_OF_TWO = frozenset({"Add", "AddV2"})

# Third: a constant that is combined with such a pair of ops is pushed down into the first of them, and folded there, when all that
# the first is given lies on the same device as well: (a * b) * 0.3 becomes a * (b * 0.3). RealDiv by a constant is a Mul by then,
# and so is a third power. A layer's bias changes places with a constant that is added to the layer.
PUSHED_DOWN = (frozenset({"Add", "AddV2", "Sub", "BiasAdd"}), frozenset({"Mul", "RealDiv", "Div", "Pow"}))
# Rewritten on whatever devices the two lie, who else reads the first or not, so that they need not share one, but no node may go
# between them: x / sqrt(y) becomes x * rsqrt(y), a transposition a flag of the product, exp(x) - 1 one op, and a scale goes into a
# convolution's filter. Third: which of the second's inputs.
REWRITTEN_APART = (
    (frozenset({"Sqrt", "Pow"}), frozenset({"RealDiv", "Div", "TruncateDiv", "Xdivy"}), (1,)),
    (frozenset({"Exp"}), frozenset({"Sub"}), (0,)),
    (
        frozenset({"Transpose", "ConjugateTranspose"}),
        frozenset({"MatMul", "SparseMatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"}),
        (0, 1),
    ),
    (frozenset({"Mul"}), frozenset({"Conv2D", "Conv3D"}), (0,)),
)
# Errors of these name what they are given, which on another device is called after its sending.
NAMES_ITS_INPUT = frozenset({"EnsureShape"})
# What is known before the graph runs where the shapes are.
OF_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank"})
# What a gradient does to be of the shape of what it is the gradient of, a tuple's ends among it.
UNDOES_BROADCASTING = frozenset({"BroadcastGradientArgs", "Sum", "Reshape", "NoOp", "Identity"})
# How a loop of the first generation keeps the values of its rounds.
KEEPS_FOR_GRADIENTS = frozenset({"StackPush", "StackPushV2"})


def works_on_variable(op: str) -> bool:
    return op in VARIABLE_OPS or op.startswith(VARIABLE_OP_PREFIXES)
