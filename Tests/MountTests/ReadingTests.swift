import Base
import Glibc
import Reading
import Testing

@testable import Mount

/// One tree for every test on a real mount.
enum Tree {
  typealias Node = SyntheticFileSystem.Node
  static let plain = Node(inode: 2, parent: 1, name: "plain.bin", size: 5 << 20 + 123)
  static let big = Node(inode: 3, parent: 1, name: "big.bin", size: (50 << 20) + 123)
  static let empty = Node(inode: 4, parent: 1, name: "empty")
  static let late = Node(inode: 5, parent: 1, name: "late.bin", size: 1_000_001, behaviour: .late)
  static let sizeless = Node(inode: 6, parent: 1, name: "sizeless.bin", size: 300_001, behaviour: .sizeless)
  static let stream = Node(inode: 7, parent: 1, name: "stream.bin", size: 400_003, behaviour: .stream)
  static let stuck = Node(inode: 8, parent: 1, name: "stuck.bin", size: 1 << 20, behaviour: .stuck)
  static let stuckStat = Node(inode: 9, parent: 1, name: "stuck.stat", size: 1, behaviour: .stuckStat)
  static let denied = Node(inode: 10, parent: 1, name: "denied", size: 9, behaviour: .failsToOpen(.accessDenied))
  static let broken = Node(inode: 11, parent: 1, name: "broken", size: 9, behaviour: .failsToRead(.io))
  static let tooLate = Node(inode: 12, parent: 1, name: "too late", size: 9, behaviour: .failsToRead(.timedOut))
  static let odd = Node(
    inode: 13, parent: 1, name: "odd errno", size: 9, behaviour: .failsToRead(Errno(rawValue: 4711)))
  static let folder = Node(inode: 100, parent: 1, name: "folder", isFolder: true)
  static let inner = Node(inode: 101, parent: 100, name: "Ünder café.txt", size: 12)
  static let many = Node(inode: 200, parent: 1, name: "many", isFolder: true)
  static let manyFiles = (0..<3000).map { Node(inode: 10_000 + UInt64($0), parent: 200, name: "file \($0)", size: 1) }

  /// What can be listed and read without waiting for ever.
  static let sound = [plain, big, empty, late, sizeless, stream, folder, inner, many] + manyFiles
  /// The rest.
  static let unsound = [plain, stuck, stuckStat, denied, broken, tooLate, odd]
}

extension Tests {
  @Suite("Files read through a real mount")
  struct Reading {
    @Test("cp and cmp, dd at odd offsets, tail, mmap, beyond the end: as on a local file")
    func programs() throws {
      let mount = try RealMount(Tree.sound)
      defer { mount.end() }
      try mount.writeReference(Tree.plain, "plain.bin")
      let script = """
        cp plain.bin "$REF/copy" && cmp "$REF/plain.bin" "$REF/copy" || exit 1
        for range in "1 0" "1 1" "4096 4095" "131072 7" "131073 1048575" "100000 5242000" "9 5243003" "9 99999999"; do
          set -- $range
          dd if=plain.bin bs=1 iflag=skip_bytes,count_bytes,fullblock bs=65537 skip=$2 count=$1 status=none >"$REF/a"
          dd if="$REF/plain.bin" iflag=skip_bytes,count_bytes,fullblock bs=65537 skip=$2 count=$1 status=none >"$REF/b"
          cmp "$REF/a" "$REF/b" || exit 2
        done
        tail -c 1 plain.bin | cmp - "$REF/b" >/dev/null 2>&1; tail -c 1000 plain.bin >"$REF/a"
        tail -c 1000 "$REF/plain.bin" | cmp - "$REF/a" || exit 3
        test -z "$(cat empty)" || exit 4
        tar -cSf - plain.bin | tar -xOf - | cmp - "$REF/plain.bin" || exit 5
        python3 - "$REF/plain.bin" <<'PY' || exit 6
        import mmap, os, sys
        a = mmap.mmap(os.open("plain.bin", os.O_RDONLY), 0, prot=mmap.PROT_READ)
        b = open(sys.argv[1], "rb").read()
        assert a[:] == b and a[4095:4097] == b[4095:4097] and len(a) == len(b)
        fd = os.open("plain.bin", os.O_RDONLY)
        twin = os.dup(fd)
        os.close(fd)
        assert os.pread(twin, 10, 5) == b[5:15] and os.pread(twin, 0, 5) == b"" and os.pread(twin, 10, len(b)) == b""
        assert os.pread(twin, 10, len(b) - 1) == b[-1:]
        assert os.lseek(twin, 0, os.SEEK_DATA) == 0 and os.lseek(twin, 0, os.SEEK_HOLE) == len(b)
        PY
        """
      #expect(mount.sh(script) == .init(status: 0, output: ""))
      #expect(eventually { mount.fileSystem.state.withLock { $0.opens == $0.releases && $0.opens > 0 } })
    }

    @Test("Reads that another thread answers later")
    func late() throws {
      let mount = try RealMount(Tree.sound)
      defer { mount.end() }
      try mount.writeReference(Tree.late, "late")
      #expect(mount.sh("cmp late.bin $REF/late && dd if=late.bin bs=777 status=none | cmp - $REF/late").output == "")
      #expect(mount.session.operations.tickets.table.withLock { $0.count } == 0)
    }

    @Test("An unknown size: stat waits for it, open waits for it, and both then have it")
    func sizeless() throws {
      for first in ["stat -c %s sizeless.bin", "cat sizeless.bin | wc -c"] {
        let mount = try RealMount(Tree.sound)
        defer { mount.end() }
        try mount.writeReference(Tree.sizeless, "ref")
        #expect(mount.sh(first).output == "300001\n")
        #expect(mount.sh("cmp sizeless.bin $REF/ref; stat -c '%s %b' sizeless.bin").output == "300001 586\n")
      }
    }

    @Test("A length that stays unknown: until nothing comes")
    func stream() throws {
      let mount = try RealMount(Tree.sound)
      defer { mount.end() }
      try mount.writeReference(Tree.stream, "ref")
      #expect(mount.sh("cat stream.bin | cmp - $REF/ref; stat -c '%s %b' stream.bin").output == "1 1\n")
    }

    @Test("8 readers at random offsets of one file", arguments: [1, 2, 4])
    func readers(threads: Int) throws {
      let mount = try RealMount(Tree.sound) { $0.threads = threads }
      defer { mount.end() }
      let seed = UInt64.random(in: 1 ... .max)
      let failures = Lock<[String]>([])
      let readers = (0..<8).map { index in
        OwnedThread(name: "reader") {
          var state = seed &+ UInt64(index)
          func next(_ limit: Int) -> Int {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return Int((state >> 33) % UInt64(limit))
          }
          let descriptor = open("\(mount.path)/big.bin", O_RDONLY)
          defer { close(descriptor) }
          var buffer = [UInt8](repeating: 0, count: 300_000)
          var right = buffer
          for _ in 0..<100 {
            let (offset, length) = (next(Int(Tree.big.size) + 1000), next(buffer.count))
            let count = pread(descriptor, &buffer, length, offset)
            let expected = max(0, min(length, Int(Tree.big.size) - offset))
            right.withUnsafeMutableBytes { fill(.init(rebasing: $0[..<expected]), Tree.big.inode, at: Int64(offset)) }
            let isRight = count == expected && memcmp(buffer, right, expected) == 0
            if !isRight { failures.withLock { $0.append("\(length) at \(offset): \(count)") } }
          }
        }
      }
      for reader in readers { reader.join() }
      #expect(failures.withLock { $0 } == [], "seed \(seed)")
    }

    @Test("What was read once is not asked for again, whoever opens the file: the page cache outlives handles")
    func cached() throws {
      let mount = try RealMount(Tree.sound)
      defer { mount.end() }
      try mount.writeReference(Tree.plain, "ref")
      func reads() -> Int { mount.fileSystem.state.withLock { $0.reads } }
      #expect(mount.sh("cmp plain.bin $REF/ref").output == "")
      #expect(eventually { mount.fileSystem.state.withLock { $0.opens == $0.releases } })
      let before = reads()
      #expect(before > 0)
      for _ in 0..<3 { #expect(mount.sh("cmp plain.bin $REF/ref").output == "") }
      // The kernel may have dropped a page by itself.
      #expect(reads() < before + before / 4)
    }

    @Test("Files that are read ahead and wait take nothing from others: forty of them, and one that is read")
    func parkedReadAhead() throws {
      let stuck = (0..<40).map {
        Tree.Node(inode: 300 + UInt64($0), parent: 1, name: "stuck \($0)", size: 1 << 20, behaviour: .stuck)
      }
      let mount = try RealMount(Tree.sound + stuck)
      let readers = stuck.map { node in
        OwnedThread(name: "stuck") {
          let descriptor = open("\(mount.path)/\(node.name)", O_RDONLY)
          var buffer = [UInt8](repeating: 0, count: 4096)
          if pread(descriptor, &buffer, buffer.count, 0) >= 0 { Issue.record("\(node.name) was read") }
          close(descriptor)
        }
      }
      let waiting = { mount.fileSystem.state.withLock { state in Set(state.parked.values.compactMap(\.inode)).count } }
      #expect(eventually { waiting() == stuck.count }, "\(waiting()) of them came through to the server")
      let other = Program.run("exec cat \(mount.path)/plain.bin >/dev/null")
      #expect(other.status == 0, "a file that could be read at once waits behind others")
      mount.end()
      for reader in readers { reader.join() }
    }

    @Test("Errors reach the program; one that the kernel would drop becomes EIO")
    func errors() throws {
      let mount = try RealMount(Tree.unsound)
      defer { mount.end() }
      #expect(mount.sh("cat denied").output == "cat: denied: Permission denied\n")
      #expect(mount.sh("cat broken").output == "cat: broken: Input/output error\n")
      #expect(mount.sh("cat 'odd errno'").output == "cat: 'odd errno': Input/output error\n")
      #expect(mount.sh("cat none").output == "cat: none: No such file or directory\n")
      // A read of the page cache makes every error EIO; direct I/O shows which it was.
      #expect(mount.sh("dd if='too late' iflag=direct 2>&1 | head -1").output.contains("Connection timed out"))
    }

    @Test("The caller's id is the reading thread's")
    func caller() throws {
      let mount = try RealMount(Tree.sound)
      defer { mount.end() }
      let program = try Program.start("exec cat \(mount.path)/plain.bin >/dev/null")
      let pid = program.pid
      #expect(program.wait().status == 0)
      #expect(mount.fileSystem.state.withLock { $0.readers.contains(pid) })
    }
  }
}
