/// What the control socket asks of the server.
///
/// Called on control threads, several at once. Every call may wait for the disk, none for the network. Paths are
/// normal: no leading, trailing or doubled slash, no `.` or `..`; the root is the empty path.
package protocol ControlHandler: AnyObject, Sendable, StatusSource {
  /// Asks for all of the files at and below `paths` to be completed, now and over restarts; returns them. Files that
  /// are complete or failed already are among them (failed ones are tried anew). `notFound` for a path that is not
  /// there: then nothing was begun.
  func fetch(_ paths: [String]) throws(ControlFailure) -> [FetchTarget]
  /// How far those are, in the same order. Asked every 200 ms while a client waits, for at most
  /// ``ControlLimits/polled`` targets at once.
  func progress(of targets: [FetchTarget]) -> [FetchProgress]
  /// Drops what is stored of the files at and below `paths` (nil: of all), completed copies too; a copy that a user
  /// changed is kept and reported.
  func clear(_ paths: [String]?) throws(ControlFailure) -> ClearReport
  /// Asks the server to end: to unmount and save. Must only give the word and return, since the listener is stopped by
  /// it.
  func stop()
}

/// A file that a client waits for.
package struct FetchTarget: Sendable, Equatable {
  /// What the server knows it by; opaque here.
  package var id: Int64
  /// Its path in the mount.
  package var path: String

  /// That file.
  package init(id: Int64, path: String) {
    self.id = id
    self.path = path
  }
}

/// How far one fetched file is. ``FileState/complete`` means verified; ``FileState/failed`` that it does not go on by
/// itself (also when the store or the disk is full).
package struct FetchProgress: Codable, Sendable, Equatable {
  /// Its path in the mount.
  package var path: String
  /// How much of it is here.
  package var state: FileState
  /// Bytes that are stored.
  package var stored: Int64
  /// Bytes it has, when known.
  package var size: Int64?
  /// Bytes a second that arrive now.
  package var rate: Double
  /// Why it failed, or what holds it up; nil for nothing.
  package var error: String?
  /// Seconds since that error; nil where nobody knows.
  package var errorAge: Int64?
  /// What it waits for; nil for nothing.
  package var waitsFor: FileWait?
  /// Until when, in seconds since 1970; nil: nobody knows.
  package var waitsUntil: Int64?
  /// What to do about `error` and `waitsFor`.
  package var advice: String?

  /// The progress of a file in that state.
  package init(_ file: FileStatus) {
    self.init(
      path: file.path, state: file.state, stored: file.stored, size: file.size, rate: file.rate, error: file.error,
      advice: file.advice)
    (errorAge, waitsFor, waitsUntil) = (file.errorAge, file.waitsFor, file.waitsUntil)
  }

  /// That progress.
  package init(
    path: String, state: FileState, stored: Int64, size: Int64? = nil, rate: Double = 0, error: String? = nil,
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

  /// Whether it may stay as it is for long: it has an error, or waits for what no other download's end brings. (The
  /// line and its turn come by themselves.)
  package var isHeldUp: Bool {
    if isOver { return false }
    switch waitsFor {
    case .space, .origin, .reader: return true
    case .line, .turn, nil: return error != nil
    }
  }

  /// Whether nothing more will come: complete, failed, or kept as a user's own.
  package var isOver: Bool { state == .complete || state == .failed || state == .modified }
}

/// Where a fetch stands as a whole, and what changed since the last report.
package struct FetchReport: Codable, Sendable, Equatable {
  /// Files asked for.
  package var files: Int = 0
  /// Files complete and verified.
  package var complete: Int = 0
  /// Files that will not become complete by themselves.
  package var failed: Int = 0
  /// Of those that are not over, the ones that are held up (``FetchProgress/isHeldUp``), as last looked at. Nil from a
  /// server that does not tell.
  package var heldUp: Int? = 0
  /// Bytes stored of all of them, as last looked at.
  package var stored: Int64 = 0
  /// Bytes of those whose size is known.
  package var size: Int64 = 0
  /// Files whose size is not known yet.
  package var unknownSizes: Int = 0
  /// Bytes a second that arrive now for them.
  package var rate: Double = 0
  /// Those that are over since the last report, and some (at most ``ControlLimits/shown``) that are being fetched.
  package var changes: [FetchProgress] = []

  /// All zero.
  package init() {}

  /// Whether there is nothing to wait for any more.
  package var isOver: Bool { complete + failed >= files }
}

/// What `clear` did.
package struct ClearReport: Codable, Sendable, Equatable {
  /// A file that was left alone.
  package struct Kept: Codable, Sendable, Equatable {
    /// Its path in the mount.
    package var path: String
    /// Why, for a person.
    package var reason: String

    /// That file, for that reason.
    package init(path: String, reason: String) {
      self.path = path
      self.reason = reason
    }
  }

  /// Files of which something was dropped.
  package var files: Int64
  /// Bytes that were dropped.
  package var bytes: Int64
  /// Files that were left alone, the first ``ControlLimits/shown`` of them.
  package var kept: [Kept]
  /// How many were left alone in all.
  package var keptFiles: Int64

  /// Nothing dropped, unless given.
  package init(files: Int64 = 0, bytes: Int64 = 0, kept: [Kept] = [], keptFiles: Int64 = 0) {
    self.files = files
    self.bytes = bytes
    self.kept = kept
    self.keptFiles = keptFiles
  }
}

/// Who serves, as `hello` tells.
package struct ServerIdentity: Codable, Sendable, Equatable {
  /// Its process id.
  package var pid: Int32
  /// Where it is mounted: an absolute path.
  package var mountpoint: String
  /// The program's version.
  package var program: String

  /// That server.
  package init(pid: Int32, mountpoint: String, program: String) {
    self.pid = pid
    self.mountpoint = mountpoint
    self.program = program
  }
}
