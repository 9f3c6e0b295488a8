import Base
import Glibc
import TestSupport
import Testing

@Suite struct LockTests {
  @Test func countsWithoutLosingAny() {
    let lock = Lock(0)
    let threads = (0..<8).map { index in
      OwnedThread(name: "count-\(index)") { for _ in 0..<5_000 { lock.withLock { $0 += 1 } } }
    }
    for thread in threads { thread.join() }
    #expect(lock.withLock { $0 } == 40_000)
  }

  /// In debug builds: the thread would wait for itself for ever.
  @Test("A thread that takes a lock twice ends the program")
  func lockedTwice() async {
    await #expect(processExitsWith: .failure) {
      let lock = Lock(0)
      lock.withLock { _ in lock.withLock { $0 += 1 } }
    }
  }

  @Test func handsOverWhatTheBodyThrows() {
    let lock = Lock([1])
    #expect(throws: Errno.noSpace) { try lock.withLock { (_: inout [Int]) throws(Errno) in throw Errno.noSpace } }
    #expect(lock.withLock { $0.count } == 1, "it is free again")
  }
}

@Suite struct OwnedThreadTests {
  @Test func standsBackIfItIsTold() {
    let seen = Lock<[Int32]>([])
    for standsBack in [false, true] {
      OwnedThread(name: "work", standsBack: standsBack) {
        let policy = sched_getscheduler(0)
        seen.withLock { $0.append(policy) }
      }.join()
    }
    #expect(seen.withLock { $0 } == [0, 3])  // SCHED_OTHER, SCHED_BATCH
  }

  @Test func hasItsNameAndBlocksSignals() {
    let seen = Lock((name: "", isBlocked: false))
    OwnedThread(name: "a name that is too long") {
      var name = [UInt8](repeating: 0, count: 32)
      do throws(Errno) {
        let file = try FileDescriptor.open("/proc/thread-self/comm", O_RDONLY)
        _ = name.withUnsafeMutableBytes { read(file.rawValue, $0.baseAddress, $0.count) }
      } catch {
        Issue.record(error)
      }
      var mask = sigset_t()
      pthread_sigmask(SIG_SETMASK, nil, &mask)
      let text = String(decoding: name.prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
      let isBlocked = sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGINT) == 1
      seen.withLock { $0 = (text, isBlocked) }
    }.join()
    #expect(seen.withLock { $0.name } == "a name that is ")
    #expect(seen.withLock { $0.isBlocked })
  }

  /// The limit is one of all processes and threads of a user, and holds for no process of root's.
  @Test(
    "A program that is refused a thread which it needs to begin says so and ends", .enabled(if: TestUser.canSwitch))
  func refused() async {
    let result = await #expect(processExitsWith: .exitCode(1), observing: [\.standardErrorContent]) {
      try #require(setuid(65534) == 0)
      var none = rlimit(rlim_cur: 0, rlim_max: 0)
      try #require(setrlimit(__rlimit_resource_t(__RLIMIT_NPROC.rawValue), &none) == 0)
      OwnedThread(name: "one too many") {}.join()
    }
    let said = String(decoding: result?.standardErrorContent ?? [], as: UTF8.self)
    #expect(said.contains("cannot start the thread one too many"), "\(said)")
  }
}

@Suite struct ErrnoTests {
  @Test func speaksTheSystemsWords() {
    #expect(Errno.notFound.description == "No such file or directory")
    #expect(Errno(rawValue: 99_999).description.contains("99999"))
    errno = ENOTDIR
    #expect(Errno.current == .notDirectory)
  }
}

@Suite struct InstantTests {
  @Test func runsForward() {
    let before = Instant.now
    sleep(seconds: 0.01)
    let after = Instant.now
    #expect(before < after && after < .never)
    #expect(after.seconds(since: before) >= 0.01)
    #expect(before.adding(seconds: 1.5).nanoseconds - before.nanoseconds == 1_500_000_000)
  }
}

@Suite struct FileDescriptorTests {
  @Test func writesAndReadsAtOffsets() throws {
    try withTemporaryFolder { folder in
      let file = try FileDescriptor.open(folder.file("sparse"), O_RDWR | O_CREAT)
      let bytes = Pattern.bytes(name: "file", offset: 0, count: 300_000)
      try bytes.withUnsafeBytes { try file.writeFully($0, at: 5 << 30) }
      #expect(try file.status().st_size == 5 << 30 + 300_000)
      var back = [UInt8](repeating: 0, count: 400_000)
      let count = try back.withUnsafeMutableBytes { try file.readFully(at: 5 << 30, into: $0) }
      #expect(count == 300_000)
      #expect(Array(back.prefix(count)) == bytes)
      try file.truncate(to: 10)
      try file.sync()
      try file.syncData()
      #expect(try file.status().st_size == 10)
      #expect(try back.withUnsafeMutableBytes { try file.read(at: 10, into: $0) } == 0, "the end")
    }
  }

  @Test func closesWithItsOwnerAndNotInChildren() throws {
    try withTemporaryFolder { folder in
      let path = try folder.write("x", to: "file")
      var number: Int32 = -1
      do {
        let file = try FileDescriptor.open(path, O_RDONLY)
        number = file.rawValue
        #expect(fcntl(number, F_GETFD) & FD_CLOEXEC != 0)
      }
      // Another test's thread may have been given the number since: it must then be another file.
      var status = stat()
      var own = stat()
      stat(path, &own)
      #expect(fstat(number, &status) != 0 || status.st_ino != own.st_ino)
    }
  }

  @Test func throwsTheCallsError() {
    #expect(throws: Errno.notFound) { _ = try FileDescriptor.open("/does/not/exist", O_RDONLY) }
    let file = FileDescriptor(owning: -1)
    #expect(throws: Errno(rawValue: EBADF)) { try file.sync() }
  }

  @Test func retriesWhatASignalInterrupted() throws {
    var results: [(Int32, Int32)] = [(-1, EINTR), (-1, EINTR), (7, 0)]
    let result: Int32 = try retrying {
      let next = results.removeFirst()
      errno = next.1
      return next.0
    }
    #expect(result == 7 && results.isEmpty)
  }
}

@Suite struct LogTests {
  @Test(arguments: [
    ("https://host/path/file.mp4", "https://host/path/file.mp4"),
    ("https://user:secret@host:8080/a", "https://host:8080/a"),
    ("https://user@host", "https://host"),
    ("https://host/a?token=secret", "https://host/a?…"),
    ("https://host/a#secret", "https://host/a?…"),
    ("https://host?token=secret", "https://host?…"),
    ("https://u:p@ss@host/a", "https://host/a"),
    ("https://user:se/cret@host/a?b", "https://host/a?…"),
    ("https://host:8080/mail@me", "https://host:8080/mail@me"),
    ("https://[::1]:80/a@b", "https://[::1]:80/a@b"),
    ("https://host/mail@me", "https://host/mail@me"),
    ("https://host/a?u=x@secret/y", "https://host/a?…"),
    ("https://host/a?next=http://u:secret@other/", "https://host/a?…"),
    ("//user:secret@host/a", "//host/a"),
    ("user:secret@host/a", "host/a"),
    ("user:secret@host/a?to=http://b", "host/a?…"),
    ("user:secret@host//a", "host//a"),
    ("HTTP://U:secret@Host/A", "HTTP://Host/A"),
    ("", ""),
    ("not a url", "not a url"),
  ])
  func redactedShowsNoSecret(url: String, expected: String) {
    let shown = Log.redacted(url: url)
    #expect(shown == expected)
    #expect(!shown.contains("cret"))
  }
}
