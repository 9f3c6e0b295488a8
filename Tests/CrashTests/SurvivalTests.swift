import Base
import Glibc
import TestSupport
import Testing

/// A server that is killed again and again while programs read: none of them notices (promise P12).
@Suite(.serialized) struct SurvivalTests {
  private static let kills = getenv("MEDIAFS_SURVIVALS").flatMap { Int(String(cString: $0)) } ?? 30
  private static let sizes: [Int64] = [1_500_001, 900_000, 3_000_000, 70_000]

  /// Lends a mount of some files and a folder of many names, and a folder with what the files hold. `rate`: of the
  /// line, in bytes a second, so that reads wait.
  private func lend(
    rate: Double? = nil, sizes: [Int64] = Self.sizes, _ options: [String] = ["--continue", "never"],
    _ body: (ServedStore, Shelf, _ right: String) throws -> Void
  ) throws {
    try withWatchdog(300) {
      var settings = OriginSettings()
      settings.lineRate = rate
      settings.latency = 0.005
      try withOrigin(settings) { origin in
        var shelf = Shelf(origin: origin)
        for size in sizes { _ = shelf.add(size: size) }
        try withServedStore { store in
          let right = try store.folder.makeFolder("right")
          for index in shelf.sizes.indices {
            try store.folder.write(
              Pattern.bytes(name: Shelf.path(index), offset: 0, count: Int(shelf.sizes[index])),
              to: "right/\(Shelf.name(index))")
          }
          let names = (1000..<1600).map { (name: "folder/\($0).mp4", url: origin.url("/none/\($0).mp4")) }
          try store.list(shelf.sizes.indices.map { shelf.line($0) } + names)
          try #require(try store.start(options, shimmed: false), "\(store.errors)")
          try body(store, shelf, right)
        }
      }
    }
  }

  /// Kills the server `count` times, in the takeover itself too, but never a third time before it serves. Returns how
  /// often it killed one that served, and how often `isAnyWaiting` just before.
  @discardableResult
  private func kill(
    _ store: ServedStore, _ count: Int, _ random: inout SeededRandom, isAnyWaiting: () -> Bool = { false },
    until isOver: () -> Bool
  ) throws -> (serving: Int, waiting: Int) {
    var early = 0
    var kills = (serving: 0, waiting: 0)
    for _ in 0..<count where !isOver() {
      let served = store.timesServed
      let last = try #require(store.server)
      sleep(seconds: Double.random(in: 0...0.2, using: &random))
      if early == 0 {
        kills.serving += 1
        if isAnyWaiting() { kills.waiting += 1 }
      }
      store.killServer()
      try waitUntil(timeout: 60, "the next server: \(store.errors)") { store.server.map { $0 != last } ?? false }
      early = random.oneIn(3) && early < 2 ? early + 1 : 0
      if early > 0 { continue }
      try waitUntil(timeout: 60, "the next server to serve: \(store.errors)") { store.timesServed > served }
    }
    return kills
  }

  /// Over a slow line, where most reads wait. The soak has a fast one.
  @Test func readersDoNotNotice() throws {
    var random = SeededRandom.fromEnvironment(for: "survival")
    try lend(rate: 2_000_000) { store, _, right in
      let readers = try SurvivalReaders(mount: store.mountpoint, right: right)
      let kills = try kill(store, Self.kills, &random, isAnyWaiting: { readers.isAnyWaiting }) {
        !readers.problems.isEmpty
      }
      #expect(kills.waiting * 2 >= kills.serving, "\(kills)")
      Figures.add("kills of a server under reads that wait", kills.waiting)
      sleep(seconds: 0.5)
      let turns = try readers.end()
      #expect(turns.count == SurvivalReaders.ways.count && turns.values.allSatisfy { $0 > 0 }, "\(turns)")
      Figures.add("kills of a server under readers", Self.kills)
      try store.unmount()
      var audit = StoreAudit()
      try audit.look(at: store.store)
      #expect(audit.problems == [])
    }
  }

  /// The kernel reads complete files by itself where it can. The next server has to know which.
  @Test func completeFilesStayOpen() throws {
    var random = SeededRandom.fromEnvironment(for: "survival of copies")
    try lend(["--continue", "always"]) { store, shelf, right in
      let names = shelf.sizes.indices.map { Shelf.name($0) }
      for name in names { _ = try store.read(name, at: 0, count: 10) }
      try store.waitForCompletion(names)
      do {
        let held = try FileDescriptor.open("\(store.mountpoint)/\(names[0])", O_RDONLY)
        let readers = try SurvivalReaders(
          mount: store.mountpoint, right: right, ways: ["cat", "pread", "pread", "map", "idle"])
        try kill(store, Self.kills, &random) { !readers.problems.isEmpty }
        #expect(try readers.end().values.allSatisfy { $0 > 0 })
        if TestUser.canSwitch && Kernel.hasPassthrough {
          let again = try FileDescriptor.open("\(store.mountpoint)/\(names[0])", O_RDONLY)
          let late = try FileDescriptor.open("\(store.mountpoint)/\(names[2])", O_RDONLY)
          try readWithoutServer(store, [held.rawValue, again.rawValue, late.rawValue])
        }
      }
      try store.unmount()
    }
  }

  /// The kernel reads these files by itself: a server that stands still is not missed.
  private func readWithoutServer(_ store: ServedStore, _ descriptors: [Int32]) throws {
    let server = try #require(store.server)
    try #require(Glibc.kill(server, SIGSTOP) == 0)
    let counts = Lock<[Int]>([])
    let reading = OwnedThread(name: "reader") {
      for descriptor in descriptors {
        posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED)
        var bytes = [UInt8](repeating: 0, count: 50_000)
        let count = pread(descriptor, &bytes, bytes.count, 100_000)
        counts.withLock { $0.append(count) }
      }
    }
    defer {
      Glibc.kill(server, SIGCONT)
      reading.join()
    }
    try waitUntil(timeout: 30, "reads past the server that stands still") {
      counts.withLock { $0.count } == descriptors.count
    }
    #expect(counts.withLock { $0 }.allSatisfy { $0 == 50_000 })
  }

  /// The kernel holds whoever tells it to forget a name until the lookups in that folder are answered. That is not a
  /// thread of the server, which could then not end.
  @Test func namesThatLeadElsewhere() throws {
    var random = SeededRandom.fromEnvironment(for: "survival of names")
    // Large, so that reads miss what is stored, ask the origin, and find new versions.
    try lend(sizes: [Int64](repeating: 16 << 20, count: 6)) { store, shelf, _ in
      let script = """
        import os, random, sys
        mount, way = sys.argv[1:3]
        while True:
            if way == 'look':
                assert not os.path.exists(f'{mount}/missing{random.getrandbits(40)}')
            else:
                try:
                    with open(f'{mount}/{random.choice(sys.argv[3:])}', 'rb') as file:
                        file.seek(random.randrange(16000000))
                        file.read(20000)
                except OSError as error:
                    if error.errno not in (110, 116): raise  # timed out, stale: the versions change all the time
        """
      let names = shelf.sizes.indices.map { Shelf.name($0) }
      let programs = try (0..<9).map { index in
        try BackgroundProcess(
          ["/usr/bin/python3", "-c", script, store.mountpoint, index < 6 ? "look" : "read"] + names)
      }
      defer { for program in programs { program.terminate(grace: 0) } }
      for _ in 0..<15 {
        for _ in 0..<8 {
          shelf.origin.nextGeneration(Shelf.path(Int.random(in: 0..<names.count, using: &random)))
          sleep(seconds: 0.12)
        }
        try kill(store, 1, &random) { programs.contains { !$0.isRunning } }
      }
      #expect(store.errors.contains("a new version at the origin"), "no name led elsewhere")
      for program in programs { #expect(program.isRunning, "\(program.standardErrorSoFar)") }
    }
  }

  /// A program stands in a folder of the mount, and watches that folder and a file.
  @Test func foldersAndWatchesStay() throws {
    let script = """
      import ctypes, os, struct, sys, time
      mount, go = sys.argv[1:]
      libc = ctypes.CDLL(None, use_errno=True)
      os.chdir(mount + '/folder')
      held = os.open('.', os.O_RDONLY | os.O_DIRECTORY)
      watches = libc.inotify_init()
      OPEN, ACCESS = 0x20, 0x1
      marks = [libc.inotify_add_watch(watches, path, OPEN | ACCESS) for path in (b'..', b'../file-0.mp4')]
      assert min(marks) > 0, os.strerror(ctypes.get_errno())
      print('watching', flush=True)
      while not os.path.exists(go): time.sleep(0.01)
      assert os.getcwd() == mount + '/folder', os.getcwd()
      assert len(os.listdir('.')) == len(os.listdir(held)) == 600
      with open('../file-0.mp4', 'rb') as file: assert len(file.read(10)) == 10
      found, data = set(), os.read(watches, 65536)
      while data:
          mark, mask, _, length = struct.unpack_from('iIII', data)
          found.add((marks.index(mark), mask & 0xffff, data[16:16 + length].rstrip(b'\\0')))
          data = data[16 + length:]
      for seen in (0, OPEN, b'file-0.mp4'), (1, OPEN, b''), (1, ACCESS, b''): assert seen in found, found
      assert not any(mask & ~(OPEN | ACCESS) for _, mask, _ in found), found
      """
    try lend { store, _, _ in
      let go = store.folder.file("go")
      let program = try BackgroundProcess(["/usr/bin/python3", "-c", script, store.mountpoint, go])
      try #require(program.waitForOutput("watching", timeout: 60), "\(program.standardErrorSoFar)")
      for _ in 0..<3 {
        let served = store.timesServed
        store.killServer()
        try waitUntil(timeout: 60, "the next server: \(store.errors)") { store.timesServed > served }
      }
      try store.folder.write("", to: "go")
      let end = try #require(program.wait(timeout: 60), "the program hangs: \(store.errors)")
      #expect(end.succeeded, "\(end.errors)")
      try store.unmount()
    }
  }

  /// The next server serves the same tree, and the same bytes, whatever changed at its origin and in its list.
  @Test func theNextServerIsNoNewMount() throws {
    try lend { store, shelf, _ in
      let (plain, changed) = (Shelf.name(0), Shelf.name(1))
      // Nobody can tell whether the origin still has the same bytes: they count for this mount, and only for it.
      var resource = try #require(shelf.origin.resource(Shelf.path(0)))
      (resource.modified, resource.tag) = (nil, .none)
      shelf.origin.set(Shelf.path(0), resource)
      let file = try FileDescriptor.open("\(store.mountpoint)/\(plain)", O_RDONLY)
      let before = try readPart(file, at: 0, count: 200_000)
      // A version that is superseded, and stays open.
      let old = try FileDescriptor.open("\(store.mountpoint)/\(changed)", O_RDONLY)
      let oldBytes = try readPart(old, at: 0, count: 50_000)
      var oldStatus = try old.status()
      shelf.origin.nextGeneration(Shelf.path(1))
      try waitUntil(timeout: 60, "the new version") {
        var status = stat()
        guard (try? store.read(changed, at: 600_000, count: 1000)) != nil else { return false }
        return stat("\(store.mountpoint)/\(changed)", &status) == 0 && status.st_ino != oldStatus.st_ino
      }
      let part = ByteRange(0, 200_000)
      try store.waitForCommit(of: part)
      try store.waitForCommit(of: ByteRange(0, 50_000), isSuperseded: true)
      let sent = shelf.sent(0, of: part)
      let status = try file.status()
      try store.list([(name: "another.mp4", url: shelf.origin.url("/another.mp4"))])
      let last = try #require(store.server)
      store.killServer()
      try waitUntil(timeout: 60, "the next server") { store.timesServed > 0 && store.server != last }
      for descriptor in [file.rawValue, old.rawValue] { posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED) }
      #expect(try readPart(file, at: 0, count: 200_000) == before)
      #expect(shelf.sent(0, of: part) == sent, "what was stored was fetched again")
      #expect(try file.status().st_mtim.tv_sec == status.st_mtim.tv_sec)
      #expect(try readPart(old, at: 0, count: 50_000) == oldBytes, "a version that is open is gone")
      oldStatus = try old.status()
      #expect(oldStatus.st_size == Self.sizes[1])
      #expect(access("\(store.mountpoint)/another.mp4", F_OK) != 0, "the list was read again")
      #expect(try store.read(Shelf.name(3)).count == Int(Self.sizes[3]))
    }
  }
}

extension ServedStore {
  /// How often a server said that it goes on with the mount.
  var timesServed: Int { errors.split(separator: "\n").count { $0.hasSuffix("\(mountpoint) serves") } }
}
