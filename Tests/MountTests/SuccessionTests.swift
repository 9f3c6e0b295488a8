import Base
import CSystem
import Glibc
import Reading
import Testing

@testable import Mount

extension Tests {
  /// What a server leaves in the session memory, and what the next one makes of it. The servers are sessions of this
  /// process: the last one ends without an answer to what it has, as if it were killed.
  @Suite("A server follows another in the same mount")
  struct Succession {
    private func parkedCount(_ mount: RealMount) -> Int { mount.fileSystem.state.withLock { $0.parked.count } }

    private static let size: Int64 = 300_001
    private static func node(_ behaviour: SyntheticFileSystem.Behaviour) -> SyntheticFileSystem.Node {
      SyntheticFileSystem.Node(inode: 9, parent: rootInode, name: "film.bin", size: size, behaviour: behaviour)
    }

    /// Reads a request as a server does, into the buffer of a thread.
    private func take(_ mount: RealMount, intoBuffer index: Int) throws {
      let buffer = mount.memory.buffer(index)
      try #require(read(mount.device, buffer.baseAddress, buffer.count) > 0)
    }

    @Test("Parked reads are answered by the next server, and their slots are free then")
    func parked() throws {
      let first = try RealMount([Self.node(.stuck)])
      try first.writeReference(Self.node(.plain), "film")
      let program = try Program.start("exec cmp \(first.path)/film.bin \(first.folder)/film")
      #expect(eventually { parkedCount(first) > 0 })
      first.leave()
      #expect(first.memory.leftRequests().requests.count == parkedCount(first))
      let next = try RealMount(after: first, [Self.node(.late)])
      defer { next.end() }
      let end = program.wait()
      #expect(end.status == 0, "\(end)")
      #expect(next.memory.leftRequests().requests.isEmpty)
      #expect(next.sh("cmp film.bin $REF/film").status == 0)
    }

    @Test("A request that a server only read is answered, also from the buffer of a thread that there is none of")
    func inABuffer() throws {
      let first = try RealMount([Self.node(.plain)])
      #expect(first.sh("true").status == 0)
      first.leave()
      for index in [1, 12] {
        let program = try Program.start("exec stat -c %s \(first.path)/film.bin\(index)")
        try take(first, intoBuffer: index)
        let next = try RealMount(after: first, [Self.node(.plain)])
        let end = program.wait()
        #expect(end.output.contains("No such file"), "\(end)")
        next.leave()
      }
      try RealMount(after: first, []).end()
    }

    /// The two ends of the socket between a server and the helper's thread.
    private func noticesSocket() throws -> (server: Int32, helper: Int32) {
      var ends: [Int32] = [-1, -1]
      try #require(socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue), 0, &ends) == 0)
      return (ends[0], ends[1])
    }

    @Test("Notifications go to the helper: a thread that the kernel holds with one would keep a killed server alive")
    func notices() throws {
      let (server, end) = try noticesSocket()
      let helper = FileDescriptor(owning: end)
      let mount = try RealMount([Self.node(.plain)], notices: FileDescriptor(owning: server))
      defer { mount.end() }
      #expect(mount.sh("stat film.bin").status == 0)
      mount.session.invalidate(parent: rootInode, name: "film.bin", isChanged: false)
      var waiting = pollfd(fd: helper.rawValue, events: Int16(POLLIN), revents: 0)
      try #require(poll(&waiting, 1, 20_000) == 1, "nothing came")
      var packet = [UInt8](repeating: 0, count: 100)
      let count = recv(helper.rawValue, &packet, packet.count, 0)
      // The header (its length, FUSE_NOTIFY_INVAL_ENTRY, no request), the folder, the length of the name, the name.
      let header: [UInt8] = [41, 0, 0, 0, 3, 0, 0, 0] + [UInt8](repeating: 0, count: 8)
      #expect(count == 16 + 16 + 9 && Array(packet[..<16]) == header)
      #expect(packet[32..<41].elementsEqual(Array("film.bin".utf8) + [0]))
    }

    @Test("A server ends though the helper takes no notification: the kernel holds the helper's thread")
    func heldHelper() throws {
      let (server, end) = try noticesSocket()
      let helper = FileDescriptor(owning: end)
      let mount = try RealMount([Self.node(.plain)], notices: FileDescriptor(owning: server))
      #expect(mount.sh("stat film.bin").status == 0)
      for number in 0..<2000 { mount.session.invalidate(parent: rootInode, name: "\(number)", isChanged: false) }
      // The socket has room for some hundreds.
      var count: Int32 = 0
      var last: Int32 = -1
      while count == 0 || count != last {
        last = count
        usleep(50_000)
        _ = ioctl(server, UInt(TIOCOUTQ), &count)
      }
      mount.session.stop()
      let hasEnded = eventually { mount.ending.withLock { $0 != nil } }
      #expect(hasEnded)
      if !hasEnded { shutdown(helper.rawValue, Int32(SHUT_RDWR)) }
      mount.end()
    }

    /// A mount whose server has left, and a program that waits for it.
    private struct LeftMount: ~Copyable {
      let mount: RealMount
      let program: Program
      /// The slot that the program's request is in.
      var slot = 0
    }

    /// A mount whose server has left with a read of the file in a slot.
    private func leftRead(_ nodes: [SyntheticFileSystem.Node]) throws -> LeftMount {
      let first = try RealMount(nodes)
      let program = try Program.start("exec head -c 10 \(first.path)/film.bin")
      #expect(eventually { parkedCount(first) > 0 })
      first.leave()
      let left = first.memory.leftRequests().requests
      guard case .slot(let slot)? = left.first else { throw Errno.invalid }
      return LeftMount(mount: first, program: program, slot: slot)
    }

    @Test("A request that is in a buffer and in a slot is served once")
    func inBoth() throws {
      let last = try leftRead([Self.node(.stuck)])
      let first = last.mount
      let left = first.memory.leftRequests().requests
      let request = try #require(first.memory.request(inSlot: last.slot))
      first.memory.buffer(2).copyMemory(from: request)
      #expect(first.memory.leftRequests().requests == left)
      #expect(first.memory.request(inBuffer: 2) == nil)
      first.memory.buffer(2).copyMemory(from: request)
      let next = try RealMount(after: first, [Self.node(.plain)])
      defer { next.end() }
      #expect(last.program.wait().status == 0)
      #expect(next.fileSystem.state.withLock { $0.reads } == left.count)
    }

    @Test("A wait for which the session memory has no slot left is refused with ENOMEM")
    func noSlotLeft() throws {
      var other = Self.node(.stuck)
      (other.inode, other.name) = (10, "other.bin")
      let last = try leftRead([Self.node(.stuck), other])
      let first = last.mount
      let request = Array(try #require(first.memory.request(inSlot: last.slot)))
      first.memory.raiseSlotMark(to: SessionLayout.slotCount)
      for index in 0..<SessionLayout.slotCount where first.memory.request(inSlot: index) == nil {
        var copy = request
        // Numbers that the kernel has not given: it ignores the replies.
        copy.withUnsafeMutableBytes {
          $0.storeBytes(of: 1 << 40 + UInt64(index), toByteOffset: RequestHeader.uniqueAt, as: UInt64.self)
        }
        #expect(copy.withUnsafeBytes { first.memory.keep($0, inSlot: index) })
      }
      let next = try RealMount(after: first, [Self.node(.stuck), other])
      #expect(eventually { parkedCount(next) == SessionLayout.slotCount })
      let refused = next.sh("head -c 10 other.bin")
      #expect(refused.status != 0 && refused.output.contains("Cannot allocate memory"), "\(refused)")
      #expect(parkedCount(next) == SessionLayout.slotCount)
      next.end()
      _ = last.program.wait()
    }

    @Test("A reader that was killed does not wait, though only the last server was told")
    func killedBefore() throws {
      let first = try RealMount([Self.node(.stuck)])
      let program = try Program.start("exec dd iflag=direct if=\(first.path)/film.bin")
      #expect(eventually { parkedCount(first) > 0 })
      first.leave()
      kill(program.pid, SIGKILL)
      try take(first, intoBuffer: 3)
      #expect(operation(of: UnsafeRawBufferPointer(first.memory.buffer(3))) == 36, "it is no INTERRUPT")
      first.memory.clearBuffer(3)
      let next = try RealMount(after: first, [Self.node(.stuck)])
      defer { next.end() }
      #expect(program.wait().status == 128 + SIGKILL)
      #expect(next.memory.leftRequests().requests.isEmpty)
    }

    @Test("Open files stay counted, until the next server hears of their close")
    func handles() throws {
      let first = try RealMount([Self.node(.plain)])
      let script = "exec 3<film.bin 4<film.bin; touch $REF/open; until [ -e $REF/go ]; do sleep 0.02; done"
      let program = try Program.start("export REF=\(first.folder); cd \(first.path) && \(script)")
      #expect(eventually { access(first.folder + "/open", F_OK) == 0 })
      first.leave()
      let next = try RealMount(after: first, [Self.node(.plain)])
      defer { next.end() }
      #expect(next.session.opens == [9: 2])
      _ = Program.run("touch \(first.folder)/go")
      #expect(program.wait().status == 0)
      #expect(eventually { next.fileSystem.state.withLock { $0.releases } == 2 })
      #expect(next.session.opens.isEmpty)
      #expect((0..<next.memory.handleMark).allSatisfy { next.memory.handleRecord($0) == nil })
    }

    /// A mount whose server has left when it had counted an OPEN, and the program that opens. `isAnswered`: the kernel
    /// has the reply.
    private func leftOpen(isAnswered: Bool) throws -> LeftMount {
      let first = try RealMount([Self.node(.plain)])
      #expect(first.sh("stat film.bin").status == 0)
      first.leave()
      let program = try Program.start("exec head -c 100 \(first.path)/film.bin")
      try take(first, intoBuffer: 0)
      let request = try #require(first.memory.request(inBuffer: 0))
      #expect(operation(of: request) == 14, "it is no OPEN")
      let unique = request.loadUnaligned(fromByteOffset: RequestHeader.uniqueAt, as: UInt64.self)
      let handles = HandleTable(first.memory, pending: [])
      let handle = try #require(handles.add(OpenHandle(unique: unique, inode: 9, backing: 0)))
      if isAnswered {
        // fuse_out_header and fuse_open_out.
        let reply: [UInt64] = [32, unique, handle, 0]
        #expect(write(first.device, reply, 32) == 32)
      }
      return LeftMount(mount: first, program: program)
    }

    @Test("An OPEN that a killed server counted, answered or not, counts once", arguments: [false, true])
    func openedTwice(isAnswered: Bool) throws {
      let last = try leftOpen(isAnswered: isAnswered)
      let first = last.mount
      #expect(HandleTable.leftOpen(in: first.memory).map(\.inode) == [9])
      let next = try RealMount(after: first, [Self.node(.plain)])
      defer { next.end() }
      #expect(last.program.wait().status == 0)
      #expect(eventually { next.session.opens.isEmpty })
      // The OPEN that was carried out again was counted twice, and uncounted once; then the handle was closed.
      #expect(eventually { next.fileSystem.state.withLock { $0.releases } == 2 })
    }

    @Test("An OPEN that a killed server counted, and the next one refuses, is open no more")
    func refusedAfterAll() throws {
      let last = try leftOpen(isAnswered: false)
      let next = try RealMount(after: last.mount, [Self.node(.failsToOpen(.stale))])
      defer { next.end() }
      #expect(last.program.wait().status != 0)
      #expect(eventually { next.session.opens.isEmpty })
      #expect(eventually { next.fileSystem.state.withLock { $0.releases } == 1 })
      #expect(HandleTable.leftOpen(in: next.memory).isEmpty)
    }
  }
}

@Suite("The handles in the session memory")
struct HandleTableTests {
  private let film = OpenHandle(unique: 0x1_0000_0042, inode: 7, backing: 3)

  @Test("A handle is there until it is removed, once")
  func removedOnce() throws {
    let memory = try SessionMemory()
    let table = HandleTable(memory, pending: [])
    let number = try #require(table.add(film))
    #expect(HandleTable.leftOpen(in: memory) == [film])
    #expect(!table.remove(number, of: 8))
    #expect(table.remove(number, of: 7))
    #expect(!table.remove(number, of: 7))
    #expect(HandleTable.leftOpen(in: memory).isEmpty)
    // Another handle at the same place: a RELEASE of the first one, carried out again, does not close it.
    let next = try #require(table.add(OpenHandle(unique: 0x44, inode: 7, backing: 0)))
    #expect(!table.remove(number, of: 7))
    #expect(table.remove(next, of: 7))
  }

  @Test("Only handles whose OPEN waits are looked for by its number")
  func known() throws {
    let memory = try SessionMemory()
    let number = try #require(HandleTable(memory, pending: []).add(film))
    #expect(HandleTable(memory, pending: []).known(film.unique) == nil)
    let next = HandleTable(memory, pending: [film.unique])
    #expect(try #require(next.known(film.unique)).number == number)
    #expect(next.remove(number, of: 7))
    #expect(next.known(film.unique) == nil)
  }

  @Test("There is an end to them")
  func full() throws {
    let table = HandleTable(try SessionMemory(), pending: [])
    var count = 0
    while table.add(OpenHandle(unique: UInt64(count + 1), inode: 7, backing: 0)) != nil { count += 1 }
    #expect(count == SessionLayout.handleCount)
  }

  @Test("Memory of another version, or of another size, is refused")
  func strange() throws {
    for damage in [8, 0, 16, 20] {
      let file = FileDescriptor(owning: csystem_make_memory_file("strange"))
      try file.truncate(to: Int64(SessionLayout.size))
      let number = file.rawValue
      _ = try SessionMemory(FileDescriptor(owning: dup(number)))
      let bytes = [UInt8](repeating: 0xFF, count: 4)
      try bytes.withUnsafeBytes { try file.writeFully($0, at: Int64(damage)) }
      #expect(throws: MountError.memory) { try SessionMemory(FileDescriptor(owning: dup(number))) }
    }
    let short = FileDescriptor(owning: csystem_make_memory_file("strange"))
    try short.truncate(to: 4096)
    let number = short.rawValue
    #expect(throws: MountError.memory) { try SessionMemory(FileDescriptor(owning: dup(number))) }
  }
}
