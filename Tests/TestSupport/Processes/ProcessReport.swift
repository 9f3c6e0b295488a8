import Base
import Glibc

/// What processes are doing, for the message of a test that hung.
package enum ProcessReport {
  /// The state of `processID` and of its descendants (`withGroup`: of its process group too): each thread's name,
  /// state, kernel function and kernel stack as far as we may see them, and gdb's backtraces when gdb is there. Blocks
  /// for up to half a minute a process.
  package static func describe(_ processID: pid_t, withGroup: Bool = false) -> String {
    let all = relations()
    var members = [processID]
    var index = 0
    while index < members.count {
      members += all.filter { $0.parent == members[index] && !members.contains($0.process) }.map(\.process)
      index += 1
    }
    if withGroup { members += all.filter { $0.group == processID && !members.contains($0.process) }.map(\.process) }
    return members.map { kernelState($0) + backtraces($0) }.joined(separator: "\n")
  }

  /// What /proc says of the process and each of its threads; never waits.
  package static func kernelState(_ processID: pid_t) -> String {
    let base = "/proc/\(processID)"
    let command = text(of: "\(base)/cmdline").replacing("\0", with: " ")
    var report = "process \(processID): \(command)\n"
    for task in folderNames("\(base)/task").compactMap({ pid_t($0) }).sorted() {
      let path = "\(base)/task/\(task)"
      let wanted = ["State", "SigPnd", "ShdPnd"]
      let status = text(of: "\(path)/status").split(separator: "\n")
        .filter { line in wanted.contains { line.hasPrefix($0 + ":") } }
        .map { $0.replacing("\t", with: " ") }.joined(separator: ", ")
      report += "  thread \(task) \(trimmed(text(of: "\(path)/comm"))): \(status), in \(text(of: "\(path)/wchan")),"
      report += " syscall \(trimmed(text(of: "\(path)/syscall")))\n"
      for line in text(of: "\(path)/stack").split(separator: "\n") { report += "    \(line)\n" }
    }
    return report
  }

  /// gdb's `thread apply all bt`; empty when there is no gdb, or a thread is in uninterruptible sleep (gdb would wait
  /// too).
  package static func backtraces(_ processID: pid_t) -> String {
    guard processID != getpid(), Command.exists("gdb"), !isUninterruptible(processID) else { return "" }
    do {
      let process = try BackgroundProcess(backtraceCommand(processID, seconds: 30))
      let result = process.wait(timeout: 35)
      return (result?.output ?? process.standardOutputSoFar) + "\n"
    } catch {
      return "no backtrace: \(error)\n"
    }
  }

  /// What prints the backtraces of a process, or gives up after some seconds.
  static func backtraceCommand(_ processID: pid_t, seconds: Int) -> [String] {
    ["timeout", "-s", "KILL", String(seconds), "gdb", "-nx", "-batch", "-iex", "set complaints 0"]
      + ["-p", String(processID), "-ex", "thread apply all bt"]
  }

  /// Whether a thread of it is in D state.
  private static func isUninterruptible(_ processID: pid_t) -> Bool {
    folderNames("/proc/\(processID)/task").contains { task in
      text(of: "/proc/\(processID)/task/\(task)/status").contains("State:\tD")
    }
  }

  private static func relations() -> [(process: pid_t, parent: pid_t, group: pid_t)] {
    folderNames("/proc").compactMap { name in
      guard let process = pid_t(name) else { return nil }
      // The name in parentheses may hold anything: the fields are counted from its last parenthesis.
      let line = text(of: "/proc/\(name)/stat")
      guard let close = line.lastIndex(of: ")") else { return nil }
      let fields = line[close...].split(separator: " ")
      guard fields.count > 3, let parent = pid_t(fields[2]), let group = pid_t(fields[3]) else { return nil }
      return (process, parent, group)
    }
  }

  private static func trimmed(_ text: String) -> String { text.replacing("\n", with: "") }
}

/// Whether every thread of a process stands still: SIGSTOP takes a moment.
package func isStopped(_ process: pid_t) -> Bool {
  let threads = folderNames("/proc/\(process)/task")
  return !threads.isEmpty
    && threads.allSatisfy { text(of: "/proc/\(process)/task/\($0)/status").contains("State:\tT") }
}

/// The text of a small file (of /proc, say), empty when it cannot be read: what is gone has nothing to say.
package func text(of path: String) -> String { String(decoding: bytes(of: path) ?? [], as: UTF8.self) }

/// The bytes of a file, nil when it cannot be read.
func bytes(of path: String) -> [UInt8]? {
  let descriptor: FileDescriptor
  do throws(Errno) { descriptor = try FileDescriptor.open(path, O_RDONLY) } catch { return nil }
  var all: [UInt8] = []
  var buffer = [UInt8](repeating: 0, count: 64 << 10)
  while true {
    // read(2), not pread(2): the files of /proc have no size, and some cannot seek.
    let count = read(descriptor.rawValue, &buffer, buffer.count)
    if count < 0, errno == EINTR { continue }
    if count <= 0 { return all }
    all += buffer[..<count]
  }
}

/// The names in a folder, without `.` and `..`; empty when it cannot be read.
package func folderNames(_ path: String) -> [String] {
  guard let stream = opendir(path) else { return [] }
  defer { closedir(stream) }
  var names: [String] = []
  while let entry = readdir(stream) {
    let name = withUnsafePointer(to: &entry.pointee.d_name) { pointer in
      pointer.withMemoryRebound(to: CChar.self, capacity: MemoryLayout.size(ofValue: pointer.pointee)) {
        String(cString: $0)
      }
    }
    if name != ".", name != ".." { names.append(name) }
  }
  return names
}
