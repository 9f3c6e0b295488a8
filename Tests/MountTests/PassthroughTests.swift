import Base
import CFuse
import Glibc
import Reading
import Testing

@testable import Mount

/// A reader that does as it is told, line by line, and answers each line with one: `open`, `map`, `unmap`, `close`
/// NAME, `check` NAME REFERENCE (all of it, and parts), `quit`.
private let obedientReader = """
  import mmap, os, random, sys
  files, maps = {}, {}
  for line in sys.stdin:
      verb, *names = line.split()
      try:
          name = names[0] if names else ''
          if verb == 'quit': break
          if verb == 'open': files[name] = os.open(name.rstrip('+'), os.O_RDONLY)
          if verb == 'map': maps[name] = mmap.mmap(files[name], 0, prot=mmap.PROT_READ)
          if verb == 'unmap': maps.pop(name).close()
          if verb == 'close': os.close(files.pop(name))
          if verb == 'check':
              right = open(names[1], 'rb').read()
              if name in maps: assert maps[name][:] == right, 'the map'
              if name in files:
                  file = files[name]
                  assert os.fstat(file).st_size == len(right), 'the size'
                  assert os.pread(file, len(right) + 10, 0) == right, 'the whole'
                  for _ in range(50):
                      at, count = random.randrange(len(right) + 100), random.choice([1, 4096, 70001])
                      assert os.pread(file, count, at) == right[at:at + count], f'{count} at {at}'
          print('done', flush=True)
      except BaseException as error:
          print(repr(error), flush=True)
  """

/// ``obedientReader`` in a mount.
private final class Reader {
  private let pid: pid_t
  private let toIt: FileDescriptor
  private let fromIt: FileDescriptor

  init(in mount: RealMount) throws {
    let script = mount.folder + "/reader.py"
    let file = try FileDescriptor.open(script, O_WRONLY | O_CREAT)
    try Array(obedientReader.utf8).withUnsafeBytes { try file.writeFully($0, at: 0) }
    // Both ends of each are ours as well, so that neither opening nor writing waits, or ends us.
    let pipes = ["to", "from"].map { "\(mount.folder)/\($0)-reader" }
    for pipe in pipes { guard mkfifo(pipe, 0o600) == 0 else { throw Errno.current } }
    toIt = try FileDescriptor.open(pipes[0], O_RDWR)
    fromIt = try FileDescriptor.open(pipes[1], O_RDWR)
    pid = try Program.start("cd \(mount.path) && exec python3 \(script) <\(pipes[0]) >\(pipes[1])").pid
  }

  /// Has it do `line`; its answer, which is `done` when all is well.
  func tell(_ line: String) -> String {
    let bytes = Array((line + "\n").utf8)
    _ = write(toIt.rawValue, bytes, bytes.count)
    var answer: [UInt8] = []
    var waiting = pollfd(fd: fromIt.rawValue, events: Int16(POLLIN), revents: 0)
    while answer.last != UInt8(ascii: "\n") {
      guard poll(&waiting, 1, 120_000) == 1 else { return "no answer within 120 s" }
      var byte: UInt8 = 0
      guard Glibc.read(fromIt.rawValue, &byte, 1) == 1 else { return "it ended" }
      answer.append(byte)
    }
    return String(decoding: answer.dropLast(), as: UTF8.self)
  }

  func end() {
    let line = Array("quit\n".utf8)
    _ = write(toIt.rawValue, line, line.count)
    var status: Int32 = 0
    if !eventually({ waitpid(pid, &status, WNOHANG) == pid }) {
      kill(pid, SIGKILL)
      waitpid(pid, &status, 0)
    }
  }
}

/// A mount with a file, its bytes beside it, and a reader.
private final class Bench {
  let mount: RealMount
  let reader: Reader
  let node = Tree.plain
  let reference: String

  init(_ change: (inout MountOptions) -> Void = { $0.passthroughDepth = 2 }) throws {
    mount = try RealMount([Tree.plain, Tree.empty], change: change)
    reference = mount.folder + "/copy"
    try mount.writeReference(node, "copy")
    #expect(mount.sh("ls >/dev/null").status == 0)
    let handshake = mount.session.operations.handshake
    #expect(handshake.hasPassthrough == (handshake.isOfferedPassthrough && handshake.options.passthroughDepth > 0))
    reader = try Reader(in: mount)
  }

  /// Makes the file complete.
  func complete(_ inode: Inode? = nil) throws {
    let copy = ServedFile(copy: try FileDescriptor.open(reference, O_RDONLY))
    mount.fileSystem.state.withLock { $0.copies[inode ?? node.inode] = copy }
  }

  private var passthrough: Passthrough { mount.session.operations.passthrough }
  var reads: Int { mount.fileSystem.state.withLock { $0.reads } }
  /// How the inode is open.
  var way: OpenFiles.Way? { passthrough.openFiles.withLock { $0.open.first { $0.inode == Tree.plain.inode }?.way } }
  /// Whether the kernel passes reads on here. Asked once a complete file was opened.
  var passes: Bool { passthrough.isPossible }

  func check(_ name: String = "plain.bin") -> String { reader.tell("check \(name) \(reference)") }

  func end() {
    reader.end()
    #expect(eventually { passthrough.openFiles.withLock { $0.open.isEmpty } })
    #expect(eventually { mount.fileSystem.state.withLock { $0.opens == $0.releases } })
    mount.end()
  }
}

extension Tests {
  @Suite("Complete files, read past the server")
  struct Passthrough {
    @Test("What was complete before it was opened is never asked for, by read or by map, and looks the same")
    func complete() throws {
      let bench = try Bench()
      defer { bench.end() }
      try bench.complete()
      #expect(bench.reader.tell("open plain.bin") == "done")
      #expect(bench.reader.tell("open plain.bin+") == "done")
      #expect(bench.reader.tell("map plain.bin") == "done")
      #expect(bench.check() == "done")
      #expect(bench.check("plain.bin+") == "done")
      let script = """
        cmp plain.bin $REF/copy && stat -c '%s %Y %b' plain.bin || exit 1
        dd if=plain.bin iflag=direct bs=1M 2>/dev/null | cmp - $REF/copy
        """
      let result = bench.mount.sh(script)
      #expect(result.lines.first == "\(Tree.plain.size) 1000000000 \((Tree.plain.size + 511) / 512)")
      #expect(result.status == 0)
      if bench.passes {
        #expect(bench.reads == 0)
        guard case .passthrough(let backing) = bench.way else {
          Issue.record("\(String(describing: bench.way))")
          return
        }
        for line in ["unmap plain.bin", "close plain.bin"] { #expect(bench.reader.tell(line) == "done") }
        #expect(bench.way != nil)
        #expect(bench.reader.tell("close plain.bin+") == "done")
        #expect(eventually { bench.way == nil })
        #expect(eventually { bench.mount.fileSystem.state.withLock { $0.opens == $0.releases } })
        // The id went with the last of them.
        #expect(backing > 0 && eventually { bench.mount.registrar.ids.withLock { $0.isEmpty } })
      } else {
        #expect(bench.reads > 0)
      }
    }

    @Test(
      "What is completed while it is open stays ordinary until the last handle or map is gone",
      arguments: [false, true])
    func completedMeanwhile(mapped: Bool) throws {
      let bench = try Bench()
      defer { bench.end() }
      #expect(bench.reader.tell("open plain.bin") == "done")
      if mapped {
        for line in ["map plain.bin", "close plain.bin"] { #expect(bench.reader.tell(line) == "done") }
      }
      #expect(bench.check() == "done")
      try bench.complete()
      #expect(bench.check() == "done")
      #expect(bench.reader.tell("open plain.bin+") == "done")
      #expect(bench.way == .ordinary)
      #expect(bench.check("plain.bin+") == "done")
      #expect(bench.mount.sh("cmp plain.bin $REF/copy").status == 0)
      #expect(bench.reader.tell(mapped ? "unmap plain.bin" : "close plain.bin") == "done")
      #expect(bench.check("plain.bin+") == "done")
      #expect(bench.way == .ordinary)
      #expect(bench.reader.tell("close plain.bin+") == "done")
      #expect(eventually { bench.way == nil })
      let before = bench.reads
      #expect(bench.reader.tell("open plain.bin") == "done")
      #expect(bench.check() == "done")
      if bench.passes {
        #expect(bench.reads == before)
        #expect(bench.way != .ordinary)
      }
    }

    @Test("A copy that will not do any more: open handles keep it, an open gets another inode")
    func touched() throws {
      let bench = try Bench()
      defer { bench.end() }
      try bench.complete()
      #expect(bench.reader.tell("open plain.bin") == "done")
      try #require(bench.reader.tell("check plain.bin \(bench.reference)") == "done")
      guard bench.passes else { return }
      bench.mount.fileSystem.state.withLock { $0.copies = [:] }
      // The bytes of the synthetic filesystem depend on the inode.
      var renumbered = Tree.plain
      renumbered.inode += 1_000_000
      try bench.mount.writeReference(renumbered, "after")
      #expect(bench.mount.sh("cmp plain.bin $REF/after") == .init(status: 0, output: ""))
      #expect(bench.reader.tell("open plain.bin+") == "done")
      #expect(bench.reader.tell("check plain.bin+ \(bench.mount.folder)/after") == "done")
      #expect(bench.check() == "done")
      #expect(bench.mount.fileSystem.state.withLock { $0.renewals } == 1)
      #expect(bench.reads > 0)
    }

    @Test("Where the kernel takes no backing file, or is not asked, it is read through the server", arguments: [0, 2])
    func refused(depth: UInt32) throws {
      let bench = try Bench { $0.passthroughDepth = depth }
      defer { bench.end() }
      // A folder is no backing file.
      let file = try FileDescriptor.open(depth == 0 ? bench.reference : bench.mount.folder, O_RDONLY)
      let copy = ServedFile(copy: file)
      bench.mount.fileSystem.state.withLock { $0.copies[Tree.plain.inode] = copy }
      #expect(bench.reader.tell("open plain.bin") == "done")
      #expect(bench.way == .ordinary)
      #expect(bench.check() == "done")
      #expect(bench.reads > 0)
      #expect(bench.mount.sh("cmp plain.bin $REF/copy").status == 0)
    }

    @Test("A helper that stands still delays one open by a moment, and an id that comes late is given back")
    func lateHelper() throws {
      let bench = try Bench()
      defer { bench.end() }
      try bench.complete()
      let registrar = bench.mount.registrar
      registrar.isAwake.withLock { $0 = false }
      defer { registrar.isAwake.withLock { $0 = true } }
      #expect(bench.reader.tell("open plain.bin") == "done")
      #expect(bench.way == .ordinary)
      #expect(bench.check() == "done" && bench.reads > 0)
      #expect(bench.reader.tell("close plain.bin") == "done")
      #expect(eventually { bench.way == nil })
      registrar.isAwake.withLock { $0 = true }
      guard bench.passes else { return }
      #expect(eventually { !registrar.ids.withLock { $0.isEmpty } })
      let late = registrar.ids.withLock { $0 }
      #expect(eventually { bench.reader.tell("open plain.bin") == "done" && bench.way != .ordinary })
      #expect(eventually { registrar.ids.withLock { $0.isDisjoint(with: late) && $0.count == 1 } })
      #expect(bench.check() == "done")
    }

    @Test("Many open and close one file at the same time, while it is completed")
    func crowd() throws {
      let bench = try Bench()
      defer { bench.end() }
      let failures = Lock<[Int32]>([])
      let isEnough = Lock(false)
      let path = bench.mount.path + "/plain.bin"
      let openers = (0..<8).map { _ in
        OwnedThread(name: "opener") {
          while !isEnough.withLock({ $0 }) {
            let file = open(path, O_RDONLY)
            if file < 0 {
              failures.withLock { $0.append(errno) }
              return
            }
            var byte: UInt8 = 0
            if pread(file, &byte, 1, 12_345) != 1 { failures.withLock { $0.append(errno) } }
            close(file)
          }
        }
      }
      func opens() -> Int { bench.mount.fileSystem.state.withLock { $0.opens } }
      #expect(eventually { opens() > 300 })
      // Another copy each time: what is open conflicts with it, unless a moment came at which nothing was.
      for _ in 0..<10 {
        let before = opens()
        for inode in bench.mount.fileSystem.state.withLock({ Array($0.nodes.keys) }) where inode != Tree.empty.inode {
          try bench.complete(inode)
        }
        #expect(eventually { opens() > before + 300 })
      }
      isEnough.withLock { $0 = true }
      for opener in openers { opener.join() }
      #expect(failures.withLock { $0 } == [])
    }
  }
}
