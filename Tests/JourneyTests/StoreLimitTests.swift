import Base
import Glibc
import TestSupport
import Testing

/// `--max-size` on real mounts: what `du` would say of the store, at every moment.
@Suite struct StoreLimitTests {
  /// Each process opens a file, reads at random places of it, compares, closes it, and takes the next.
  private static let readers = """
    import hashlib, os, random, sys, time
    seed, seconds, folder, originals = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4]
    names = sorted(os.listdir(folder))
    children = []
    for number in range(4):
        child = os.fork()
        if child:
            children.append(child)
            continue
        chance = random.Random(seed + number)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            name = chance.choice(names)
            size = os.stat(f"{originals}/{name}").st_size
            with open(f"{folder}/{name}", "rb") as file, open(f"{originals}/{name}", "rb") as original:
                for _ in range(chance.randint(1, 6)):
                    place, count = chance.randrange(size), chance.randint(1, 600_000)
                    file.seek(place)
                    original.seek(place)
                    if file.read(count) != original.read(count):
                        os._exit(3)
        os._exit(0)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
    """

  /// What a folder takes on the disk, with all below it.
  private static func space(below path: String) -> Int64 {
    var sum: Int64 = 0
    guard let folder = opendir(path) else { return 0 }
    defer { closedir(folder) }
    while let item = readdir(folder) {
      let name = withUnsafePointer(to: &item.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name == "." || name == ".." { continue }
      var status = stat()
      guard lstat(path + "/" + name, &status) == 0 else { continue }
      sum += status.st_mode & S_IFMT == S_IFDIR ? space(below: path + "/" + name) : Int64(status.st_blocks) * 512
    }
    return sum
  }

  /// Samples the store each 20 ms while `body` runs: the most that it had, and how often it was looked at.
  private func sampled(_ journey: Journey, _ body: () throws -> Void) throws -> (most: Int64, samples: Int) {
    let state = Lock((isDone: false, most: Int64(0), samples: 0))
    let (partials, library) = (journey.store + "/partial", journey.library)
    let sampler = OwnedThread(name: "sampler") {
      while !state.withLock({ $0.isDone }) {
        let now = Self.space(below: partials) + Self.space(below: library)
        state.withLock { ($0.most, $0.samples) = (max($0.most, now), $0.samples + 1) }
        usleep(20_000)
      }
    }
    defer { sampler.join() }
    defer { state.withLock { $0.isDone = true } }
    try body()
    return state.withLock { ($0.most, $0.samples) }
  }

  /// One window of a reader.
  private static let window: Int64 = 256 << 10

  @Test("Four random readers: at no sample is the store above its limit, also after it is lowered under them")
  func theLimitHoldsAtEachMoment() throws {
    let random = SeededRandom.fromEnvironment(for: "theLimitHoldsAtEachMoment")
    try withJourney { journey in
      try withOrigin { origin in
        let (size, limit) = (Int64(8 << 20), Int64(32 << 20))
        let names = (1...12).map { "\($0).bin" }
        for name in names { origin.add("/" + name, size: size) }
        let originals = journey.folder.file("originals")
        for name in names { _ = try journey.original(name, size: size) }
        try journey.mount(
          names.map { origin.url("/" + $0) + "\n" }.joined(), "--max-size", "\(limit)", "--min-free", "0")
        func read(_ seconds: Double) throws {
          try journey.python(Self.readers, "\(random.seed >> 8)", "\(seconds)", journey.mountpoint, originals)
        }
        func hasEvicted() throws -> Bool {
          let metrics = try journey.mediafs("metrics", journey.mountpoint).output
          let evicted = metrics.split(separator: "\n").first { $0.hasPrefix("mediafs_evicted_bytes_total ") }
          return evicted.map { !$0.hasSuffix(" 0") } == true
        }
        // On a busy machine until they have filled it.
        let (most, samples) = try sampled(journey) {
          for _ in 0..<20 {
            try read(3)
            if try hasEvicted() { break }
          }
        }
        print("limit: at most \(most - limit) bytes above, \(samples) samples")
        #expect(most <= limit + Self.window)
        #expect(most > limit / 2 && samples > 20, "the readers filled nothing: \(most)")
        #expect(try hasEvicted(), "nothing made room")

        // Lowered under load: soon below the new limit, and never above it again.
        let lower = limit / 2
        let readers = try journey.start(
          ["/usr/bin/python3", "-c", Self.readers, "\(random.seed >> 9)", "4", journey.mountpoint, originals])
        #expect(try journey.mediafs("set", journey.mountpoint, "max-size=\(lower)").status == 0)
        func held() -> Int64 { Self.space(below: journey.store + "/partial") + Self.space(below: journey.library) }
        let end = Instant.now.adding(seconds: waitBound)
        while held() > lower, Instant.now < end { sleep(seconds: 0.02) }
        let (later, _) = try sampled(journey) {
          let ended = try #require(readers.wait(timeout: 60), "the readers hang")
          #expect(ended.succeeded, "\(ended.errors)")
        }
        #expect(later <= lower + Self.window, "\(later - lower) above")
        try journey.unmount()
        let verified = try journey.mediafs("verify", journey.mountpoint)
        #expect(verified.status == 0, "\(verified.output)\(verified.errors)")
      }
    }
  }
}
