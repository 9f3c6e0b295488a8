import Base
import Glibc
import TestSupport

/// Programs that read in a mount while its servers are killed, each in its own way, and compare every byte.
final class SurvivalReaders {
  /// A program says how often it read, on SIGTERM, or what went wrong. It reads once at least, however soon that comes.
  private static let script = """
    import errno, mmap, os, random, signal, sys, time
    turns, ending = 0, False
    def end(*_):
        global ending
        ending = True
    signal.signal(signal.SIGTERM, end)
    way, mount, right = sys.argv[1:4]
    names = sorted(os.listdir(right))
    bytes_of = {name: open(f'{right}/{name}', 'rb').read() for name in names}
    def forget(file): os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    def check(name, at, found, count):
        assert found == bytes_of[name][at:at + count], f'{name}: wrong bytes at {at}, {len(found)} of {count}'
    held = os.open(f'{mount}/{names[0]}', os.O_RDONLY)
    mapped = mmap.mmap(os.open(f'{mount}/{names[1]}', os.O_RDONLY), 0, prot=mmap.PROT_READ) if way == 'map' else None
    while not ending or turns == 0:
        name = random.choice(names)
        data = bytes_of[name]
        if way == 'cat':
            with open(f'{mount}/{name}', 'rb') as file:
                forget(file.fileno())
                check(name, 0, file.read(), len(data))
        elif way == 'pread':
            file = os.open(f'{mount}/{name}', os.O_RDONLY)
            for _ in range(5):
                at, count = random.randrange(len(data)), random.choice([1, 4096, 70001])
                check(name, at, os.pread(file, count, at), count)
                if random.random() < 0.3: forget(file)
            os.close(file)
        elif way == 'tail':
            count = random.randrange(1, min(100000, len(data)))
            with open(f'{mount}/{name}', 'rb') as file:
                file.seek(-count, 2)
                check(name, len(data) - count, file.read(), count)
                forget(file.fileno())
        elif way == 'map':
            at = random.randrange(len(bytes_of[names[1]]))
            check(names[1], at, mapped[at:at + 9000], 9000)
            if random.random() < 0.2: mapped.madvise(mmap.MADV_DONTNEED)
        elif way == 'idle':
            time.sleep(random.random() / 3)
            at = random.randrange(len(bytes_of[names[0]]))
            forget(held)
            check(names[0], at, os.pread(held, 5000, at), 5000)
        elif way == 'list':
            found = []
            with os.scandir(f'{mount}/folder') as entries:
                for entry in entries:
                    found.append(entry.name)
                    if random.random() < 0.01: time.sleep(0.01)
            assert sorted(found) == [f'{n}.mp4' for n in sorted(map(str, range(1000, 1600)))], f'{len(found)} names'
            assert not os.path.exists(f'{mount}/folder/missing{random.random()}')
        elif way == 'stat':
            assert os.stat(f'{mount}/{name}').st_size == len(data)
            os.statvfs(mount)
            time.sleep(0.001)
        turns += 1
    print('turns', turns)
    """

  static let ways = ["cat", "pread", "tail", "map", "idle", "list", "stat"]
  private let programs: [(way: String, program: BackgroundProcess)]

  /// `right`: a folder with what the files in the mount should hold.
  init(mount: String, right: String, ways: [String] = SurvivalReaders.ways) throws {
    programs = try ways.map { way in
      (way, try BackgroundProcess(["/usr/bin/python3", "-c", Self.script, way, mount, right]))
    }
    // A signal that comes before would end them.
    try waitUntil(timeout: 60, "readers that take SIGTERM") { programs.allSatisfy { Self.takesSIGTERM($0.program) } }
  }

  private static func takesSIGTERM(_ program: BackgroundProcess) -> Bool {
    // One that has ended is told of later.
    guard let bytes = try? readFile("/proc/\(program.processID)/status") else { return true }
    let line = String(decoding: bytes, as: UTF8.self).split(separator: "\n").first { $0.hasPrefix("SigCgt:\t") }
    return line.flatMap { UInt64($0.dropFirst(8), radix: 16) }.map { $0 & 1 << UInt64(SIGTERM - 1) != 0 } ?? true
  }

  /// What a reader that has ended said: none may end by itself.
  var problems: [String] {
    programs.filter { !$0.program.isRunning }.map { "\($0.way): \($0.program.standardErrorSoFar)" }
  }

  /// Whether one of them waits for bytes for longer than a read from the disk takes.
  var isAnyWaiting: Bool {
    let before = waits
    sleep(seconds: 0.03)
    return !before.isDisjoint(with: waits)
  }

  /// The programs that the kernel has wait for a page, each with how often it has waited so far.
  private var waits: Set<String> {
    let found = programs.compactMap { _, program -> String? in
      guard let bytes = try? readFile("/proc/\(program.processID)/status") else { return nil }  // it has ended
      let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n")
      guard lines.contains(where: { $0.hasPrefix("State:\tD") }) else { return nil }
      return lines.first { $0.hasPrefix("voluntary_ctxt_switches") }.map { "\(program.processID) \($0)" }
    }
    return Set(found)
  }

  /// Ends them; how often each read. Throws if one found something wrong, or hangs.
  func end() throws -> [String: Int] {
    var turns: [String: Int] = [:]
    for (_, program) in programs { program.signal(SIGTERM) }
    for (way, program) in programs {
      guard let result = program.wait(timeout: 60) else {
        throw CrashFailure(description: "\(way) hangs: \(ProcessReport.kernelState(program.processID))")
      }
      guard result.succeeded, let count = result.output.split(separator: " ").last.flatMap({ Int($0.dropLast()) })
      else { throw CrashFailure(description: "\(way): \(result.status) \(result.errors)") }
      turns[way] = count
    }
    return turns
  }
}
