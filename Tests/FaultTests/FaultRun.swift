import Base
import Glibc
import TestSupport

/// Runs one case: the fault, what readers see, what is stored, and how it comes back.
struct FaultRun {
  /// A bound for a run that hangs, no measure.
  static let bound = 120.0

  let fault: FaultCase
  let readers: Readers
  private var problems: [String] = []

  static func run(_ fault: FaultCase, _ readers: Readers) throws -> [String] {
    try withTemporaryFolder { folder in
      let stage = try FaultStage(folder, size: fault.size)
      defer { stage.end() }
      var run = FaultRun(fault: fault, readers: readers)
      try run.perform(stage)
      return run.problems.map { "\(fault.name), \(readers.rawValue): \($0)" }
    }
  }

  private init(fault: FaultCase, readers: Readers) {
    self.fault = fault
    self.readers = readers
  }

  private mutating func perform(_ stage: FaultStage) throws {
    try fault.arrange(stage)
    let policy = readers == .none ? ["--continue=always"] : []
    let mount = try FaultMount(
      in: stage.folder, manifest: stage.manifest + "\n",
      options: ["--timeout", "\(fault.timeout)"] + policy + stage.options)
    defer { mount.end() }
    readers == .none ? try openOnce(mount) : readAll(mount)
    guard problems.isEmpty else { return describe(mount, stage) }
    try checkPartial(mount)
    if stage.requests > fault.mostRequests { problems.append("a storm: \(stage.requests) requests") }
    if fault.recovery != .never {
      try fault.heal(stage)
      try comeBack(mount)
    }
    if problems.isEmpty, let problem = try mount.unmount() { problems.append(problem) }
    if problems.isEmpty, fault.recovery != .never {
      let state = try mount.status(of: FaultStage.name).state
      if state != "complete" { problems.append("\(state) by the catalog, when all was over") }
    }
    if !problems.isEmpty { describe(mount, stage) }
  }

  private mutating func describe(_ mount: FaultMount, _ stage: FaultStage) {
    problems.append("the server's log: " + String(mount.process.standardErrorSoFar.suffix(3000)))
    let asked = stage.origin.log.entries.suffix(12).map { entry in
      "\(entry.request.method) \(entry.request.header("Range") ?? "whole"): \(entry.status ?? 0), \(entry.bodyBytes) bytes, "
        + (entry.end?.rawValue ?? "open")
    }
    problems.append("\(stage.requests) requests, the last: " + asked.joined(separator: "\n  "))
  }

  // MARK: While the fault lasts

  private mutating func readAll(_ mount: FaultMount) {
    let path = mount.file(FaultStage.name)
    let size = fault.size
    let starts: [Int64] = readers == .one ? [0] : (0..<8).map { $0 * size / 8 }
    let bodies = starts.map { start -> @Sendable () -> ReadOutcome in
      {
        var status = stat()
        if stat(path, &status) != 0 { return ReadOutcome(error: ("stat", 0, errno)) }
        return Reader.read(
          path, start == 0 ? [ByteRange(0, .max)] : [ByteRange(start, .max), ByteRange(0, start)],
          pattern: FaultStage.path)
      }
    }
    let outcomes = Reader.sideBySide(timeout: Self.bound, bodies)
    for (start, outcome) in zip(starts, outcomes) {
      guard let outcome else {
        problems.append("the reader from \(start) hangs: " + hangReport(mount))
        continue
      }
      judge(outcome, from: start)
    }
  }

  private func hangReport(_ mount: FaultMount) -> String {
    ProcessReport.describe(mount.process.processID, withGroup: true)
  }

  private mutating func judge(_ outcome: ReadOutcome, from start: Int64) {
    if outcome.wrongAt != nil { problems.append("wrong bytes for the reader from \(start): \(outcome)") }
    let isWhole = outcome.error == nil && outcome.bytes == fault.size
    let isExpected = { (codes: [Int32]) in outcome.error.map { codes.contains($0.code) && $0.call != "stat" } ?? false }
    let isGood =
      switch fault.outcome {
      case .bytes: isWhole
      case .errors(let codes): isExpected(codes)
      case .bytesOrErrors(let codes): isWhole || isExpected(codes)
      case .fewer(let size): outcome.error == nil && outcome.bytes == max(0, size - start) + min(size, start)
      }
    if !isGood { problems.append("the reader from \(start): \(outcome)") }
  }

  /// Opens and closes the file; then its continuation is on its own.
  private mutating func openOnce(_ mount: FaultMount) throws {
    let path = mount.file(FaultStage.name)
    let outcome = Reader.sideBySide(
      timeout: Self.bound, [{ @Sendable in Reader.read(path, [], pattern: FaultStage.path) }])[0]
    guard let outcome else {
      problems.append("an open hangs: " + hangReport(mount))
      return
    }
    if let error = outcome.error, case .errors(let codes) = fault.outcome, !codes.contains(error.code) {
      problems.append("the open: \(outcome)")
    }
    let deadline = Instant.now.adding(seconds: Self.bound)
    var last: FaultMount.Status.File?
    while Instant.now < deadline {
      let file = try mount.status(of: FaultStage.name)
      last = file
      switch fault.outcome {
      case .bytes, .fewer: if file.state == "complete" { return }
      case .errors: if file.error != nil { return }
      case .bytesOrErrors: if file.error != nil || file.state == "complete" { return }
      }
      sleep(seconds: 0.5)
    }
    problems.append("the continuation got to: \(last.map { "\($0)" } ?? "nothing")")
  }

  // MARK: The store

  /// What is said to be stored is there and right, in the store's own file.
  private mutating func checkPartial(_ mount: FaultMount) throws {
    var wrong = try wrongRanges(mount)
    // A copy that got whole in between is in the library by now.
    if !wrong.isEmpty { wrong = try wrongRanges(mount) }
    problems += wrong
  }

  /// What is said to be stored and is not so, in words.
  private func wrongRanges(_ mount: FaultMount) throws -> [String] {
    let file = try mount.status(of: FaultStage.name)
    // One that is whole is on its way to the library.
    guard file.state != "complete", !file.ranges.isEmpty, file.stored != file.size else { return [] }
    var wrong: [String] = []
    let folder = mount.store + "/partial"
    let names = try FileNames.list(folder)
    for range in file.ranges where range.count == 2 && range[0] < range[1] {
      let isRight = names.contains { name in
        let outcome = Reader.read("\(folder)/\(name)", [ByteRange(range[0], range[1])], pattern: FaultStage.path)
        return outcome.wrongAt == nil && outcome.error == nil && outcome.bytes == range[1] - range[0]
      }
      if !isRight { wrong.append("\(range) is stored by the status, but is not so in any of \(names)") }
    }
    return wrong
  }

  // MARK: Afterwards

  private mutating func comeBack(_ mount: FaultMount) throws {
    let path = mount.file(FaultStage.name)
    let deadline = Instant.now.adding(seconds: Self.bound)
    if readers != .none || fault.recovery == .opened {
      var outcome: ReadOutcome?
      repeat {
        outcome =
          Reader.sideBySide(
            timeout: Self.bound, [{ @Sendable in Reader.read(path, pattern: FaultStage.path) }])[0]
        if let outcome, outcome.error == nil || outcome.wrongAt != nil { break }
        sleep(seconds: 0.5)
      } while Instant.now < deadline && outcome != nil
      guard let outcome, outcome.error == nil, outcome.wrongAt == nil, outcome.bytes == fault.size else {
        problems.append("when it was well again: \(outcome.map { "\($0)" } ?? "a reader hangs: " + hangReport(mount))")
        return
      }
    }
    var state = ""
    while Instant.now < deadline {
      state = try mount.status(of: FaultStage.name).state
      if state == "complete" { break }
      sleep(seconds: 0.5)
    }
    guard state == "complete" else {
      problems.append("never complete, when it was well again: \(try mount.status(of: FaultStage.name))")
      return
    }
    let copy = Reader.read(mount.copy(FaultStage.name), pattern: FaultStage.path)
    if copy.error != nil || copy.wrongAt != nil || copy.bytes != fault.size {
      problems.append("the library's copy: \(copy)")
    }
  }
}

/// Names in a folder.
enum FileNames {
  static func list(_ path: String) throws(Errno) -> [String] {
    guard let folder = opendir(path) else { throw Errno.current }
    defer { closedir(folder) }
    var names: [String] = []
    while let entry = readdir(folder) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name != "." && name != ".." { names.append(name) }
    }
    return names.sorted()
  }
}
