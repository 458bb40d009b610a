//! The one table of the order in which a thread may take locks.

/// The order of locks, and the reason for each lock that is held while another one is taken. A thread that holds a lock
/// takes only locks that stand below it in this table. This is the only place where the order is defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockRank {
    /// What a worker of a model in Python sends. The thread that reads it holds the lock while it acts on it, so that two
    /// threads cannot change the order. It answers requests meanwhile, and an answer may take any lock of the engine. A
    /// thread that may hold such a lock already only tries to take another one.
    WorkerInbox,
    /// The directories that are watched. The lock is held while the system changes its watches, so that two changes cannot
    /// mix. The thread of the notifications reads the table of the directories meanwhile, which is a leaf.
    FileWatches,
    /// The backends, or the repository agents, whose libraries are open. The lock is held while a library is opened and
    /// initializes itself, because libraries were never written to do so in parallel. A library may call any function of
    /// the C interfaces meanwhile.
    PluginLibraries,
    /// The libraries that the process has loaded. The lock is held while one is loaded, whose constructors run then, for
    /// the same reason.
    LibraryLoading,
    /// What a repository agent asks about its model. An agent may ask on several threads, and the server answers one
    /// question after the other. An answer makes a directory, or keeps a path for the agent, which both have leaves.
    AgentQuestion,
    /// The library of ONNX Runtime. The lock is held while the library is looked for and opened, so that it is opened once.
    /// Servers of one process make their environments one after the other, which another lock ensures.
    RuntimeSearch,
    /// The session that the instances of a model share. The lock is held while the session is loaded, so that it is loaded
    /// once. The load reads files of the model, which have a leaf.
    SharedSession,
    /// The memory of models that are loaded on demand. A decision asks how models are used, and that is under the locks of
    /// their scheduling and of their counters.
    ModelMemory,
    /// The scheduling of a model version. Its steps give the requests of a batch their places in the order of responses, in
    /// the order in which they leave the queue, and claim shared resources of the rate limiter for what they start. Both
    /// are leaves.
    Driver,
    /// A lock that is held for arithmetic. A thread that holds it takes no other lock, but may log.
    Leaf,
    /// The lines of the log that wait for a thread, and those that are kept. A thread may log while it holds any other lock.
    Log,
}
