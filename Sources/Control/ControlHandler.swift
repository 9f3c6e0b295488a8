/// The server's side of the control socket: answers what clients ask.
///
/// Several control threads call it at once. A call may wait for the disk, and ``clear(_:isLeft:)`` for origins. Paths
/// are normal: they have no leading, trailing or doubled slash and no `.` or `..`. The empty path is the root.
package protocol ControlHandler: AnyObject, Sendable, StatusSource {
  /// Starts the download of all files at and below `paths`, which goes on after restarts too, and returns those files.
  /// They include complete files and failed ones, which are tried again. Throws `notFound`, and starts nothing, if a
  /// path does not exist.
  func fetch(_ paths: [String]) throws(ControlFailure) -> [FetchTarget]
  /// The progress of `targets`, in their order. While a client waits, its thread calls this every 200 ms, with at most
  /// ``ControlLimits/polled`` targets.
  func progress(of targets: [FetchTarget]) -> [FetchProgress]
  /// Whether each file at and below `paths` plays without a stall if it is played from the second `from` on, or, for
  /// nil, from where a program reads it, or its start. Throws `notFound` if a path does not exist, and `failed` if they
  /// are more than ``ControlLimits/polled`` files.
  func readiness(_ paths: [String], from: Double?) throws(ControlFailure) -> [FileReadiness]
  /// Deletes stored data, also complete copies of which the origin still has the same version. Keeps and reports the
  /// others, and copies that a user changed. Stops where it is once `isLeft` says that the client is gone.
  func clear(_ order: ClearOrder, isLeft: @escaping () -> Bool) throws(ControlFailure) -> ClearReport
  /// What happens from now on.
  var events: EventHub { get }
  /// Its numbers, in Prometheus' text format.
  func metrics() throws(ControlFailure) -> String
  /// Says `word` of paths and patterns, of all of them or, if it throws, of none. Throws `notFound` if a path without a
  /// wildcard does not exist. It counts their files after that, and throws `gone` once `isLeft` says that the client
  /// is gone, or that the listener stops.
  func rule(_ word: RuleWord, _ paths: [String], isLeft: () -> Bool) throws(ControlFailure) -> RuleReport
  /// Ends the background downloads of the files at and below paths, and of those that match patterns. Keeps what is
  /// stored. Reports the files whose download a rule asks for, and which therefore goes on.
  func cancel(_ paths: [String]) throws(ControlFailure) -> ClearReport
  /// Sets values of options by their names, of the mount or of a host: all of them or, if it throws, none. Returns all
  /// values that can be set, also if none was.
  func set(_ values: [String: String], host: String?) throws(ControlFailure) -> [SettingStatus]
  /// Reads the list again, and waits until the tree is as it says. Throws `gone` once `isLeft` says that the client is
  /// gone, and `failed`, without a change, if the list is of no use.
  func reload(isLeft: () -> Bool) throws(ControlFailure) -> ReloadReport
  /// Tells the server to unmount, save and exit. Returns at once: the server's end stops the listener, which waits for
  /// the calling thread.
  func stop()
  /// What it tells for an upgrade.
  var upgradeFacts: UpgradeFacts { get }
  /// Agrees with the mount helper that `program` takes the mount over. Throws `failed`, and changes nothing, if the
  /// helper refuses, and `busy` if the server is about to end. Unless it throws, ``handOver()`` must follow.
  func agreeToUpgrade(to program: ProgramFile) throws(ControlFailure)
  /// Tells the server to save and exit, so that the new program goes on. Returns at once, as ``stop()`` does.
  func handOver()
}

/// A file that a client waits for.
package struct FetchTarget: Sendable, Equatable {
  /// Its path in the mount.
  package var path: String

  package init(path: String) {
    self.path = path
  }
}

/// The progress of one fetched file. ``FileStatus/State/complete`` means that it is verified;
/// ``FileStatus/State/failed`` means that the server does not try again by itself.
package struct FetchProgress: Codable, Sendable, Equatable {
  /// Its path in the mount.
  package var path: String
  /// How much of the file is stored.
  package var state: FileStatus.State
  /// Bytes that are stored.
  package var stored: Int64
  /// The size in bytes; nil if it is not known.
  package var size: Int64?
  /// The current download rate in bytes a second.
  package var rate: Double
  /// Why it failed, or what holds it up; nil if it has no error.
  package var error: String?
  /// Seconds since that error; nil if the server does not know.
  package var errorAge: Int64?
  /// What it waits for; nil for nothing.
  package var waitsFor: FileWait?
  /// When the wait ends, in seconds since 1970; nil if that is not known.
  package var waitsUntil: Int64?
  /// What the user can do about `error` and `waitsFor`.
  package var advice: String?

  /// The progress that a status tells.
  package init(_ file: FileStatus) {
    self.init(
      path: file.path, state: file.state, stored: file.stored, size: file.size, rate: file.rate, error: file.error,
      advice: file.advice)
    (errorAge, waitsFor, waitsUntil) = (file.errorAge, file.waitsFor, file.waitsUntil)
  }

  package init(
    path: String, state: FileStatus.State, stored: Int64, size: Int64? = nil, rate: Double = 0, error: String? = nil,
    waitsFor: FileWait? = nil, advice: String? = nil
  ) {
    self.path = path
    self.state = state
    self.stored = stored
    self.size = size
    self.rate = rate.isFinite ? rate : 0
    self.error = error
    self.waitsFor = waitsFor
    self.advice = advice
  }

  /// Whether the file may stay as it is for long: it has an error, or it waits for something that the end of another
  /// download does not bring. (The line and its turn come by themselves.)
  package var isHeldUp: Bool {
    if isOver { return false }
    switch waitsFor {
    case .space, .origin, .reader, .resume: return true
    case .line, .turn, nil: return error != nil
    }
  }

  /// Whether the download has ended: the file is complete or failed, or a user changed its copy.
  package var isOver: Bool { state == .complete || state == .failed || state == .modified }
}

/// The progress of a whole fetch, and what changed since the last report.
package struct FetchReport: Codable, Sendable, Equatable {
  /// Files that the client asked for.
  package var files: Int = 0
  /// Files complete and verified.
  package var complete: Int = 0
  /// Files that the server does not try again by itself.
  package var failed: Int = 0
  /// How many of the files that are not over are held up (``FetchProgress/isHeldUp``), as last polled. Nil from a
  /// server that does not tell.
  package var heldUp: Int? = 0
  /// Stored bytes of all files, as last polled.
  package var stored: Int64 = 0
  /// The sum of the known sizes.
  package var size: Int64 = 0
  /// Files whose size is not known yet.
  package var unknownSizes: Int = 0
  /// The current download rate of these files in bytes a second.
  package var rate: Double = 0
  /// The files that ended since the last report, and at most ``ControlLimits/shown`` that are in flight or held up.
  package var changes: [FetchProgress] = []

  /// An empty report.
  package init() {}

  /// Whether every file is complete or failed.
  package var isOver: Bool { complete + failed >= files }
}

/// What `clear` did.
package struct ClearReport: Codable, Sendable, Equatable {
  /// A file that the server kept.
  package struct Kept: Codable, Sendable, Equatable {
    /// Its path in the mount.
    package var path: String
    /// Why the server kept it, for the user.
    package var reason: String

    package init(path: String, reason: String) {
      self.path = path
      self.reason = reason
    }
  }

  /// Files of which data was deleted.
  package var files: Int64
  /// Bytes that were deleted.
  package var bytes: Int64
  /// The first ``ControlLimits/shown`` files that were kept.
  package var kept: [Kept]
  /// How many files were kept in all.
  package var keptFiles: Int64

  /// An empty report, unless values are given.
  package init(files: Int64 = 0, bytes: Int64 = 0, kept: [Kept] = [], keptFiles: Int64 = 0) {
    self.files = files
    self.bytes = bytes
    self.kept = kept
    self.keptFiles = keptFiles
  }
}

/// The server that answers, as `hello` tells.
package struct ServerIdentity: Codable, Sendable, Equatable {
  /// Its process id.
  package var pid: Int32
  /// The absolute path of its mountpoint.
  package var mountpoint: String
  /// The program's version.
  package var program: String

  package init(pid: Int32, mountpoint: String, program: String) {
    self.pid = pid
    self.mountpoint = mountpoint
    self.program = program
  }
}
