import Base
import CSystem
import Glibc
import TestSupport
import Testing

@testable import Server

/// The link between mount helper and server, with a peer that does not keep to the protocol.
@Suite("Hostile link")
struct LinkFuzzTests {
  /// A socket pair; `ours` belongs to who is given it.
  private struct Pair: ~Copyable {
    let ours: Int32
    let theirs: FileDescriptor

    init() throws {
      var ends: [Int32] = [-1, -1]
      try #require(socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue), 0, &ends) == 0)
      ours = ends[0]
      theirs = FileDescriptor(owning: ends[1])
    }
  }

  private static func packet(_ type: UInt32, _ value: UInt32, _ payload: [UInt8] = []) -> [UInt8] {
    withUnsafeBytes(of: (type, value)) { Array($0) } + payload
  }

  /// Whatever the helper's end says, the server's end gives a start or an error, and keeps no descriptor that came.
  @Test func everyStartIsReadOrRefused() throws {
    var request = MountRequest(mountpoint: "/m", manifest: "-")
    request.storage.store = "/s"
    let good = request.encoded()
    var started = 0
    try Fuzzing("link", cases: 1500).run { random, place in
      let pair = try Pair()
      let link = HelperLink(owning: pair.ours)
      let options = FileDescriptor(owning: csystem_make_memory_file("test"))
      let content = random.oneIn(3) ? random.mutated(good, tokens: []) : good
      try content.withUnsafeBytes { try options.writeFully($0, at: 0) }
      let null = try FileDescriptor.open("/dev/null", O_RDWR)
      let folder = try FileDescriptor.open("/", O_RDONLY)
      let foreign = [options.rawValue, null.rawValue, folder.rawValue, -1]
      var packets = [
        (Self.packet(1, HelperMessage.version), options.rawValue), (Self.packet(2, 0), null.rawValue),
        (Self.packet(5, 0), null.rawValue), (Self.packet(3, 0, [0x2F]), Int32(-1)),
      ]
      if random.oneIn(2) { packets.insert((Self.packet(8, 0, random.bytes(40)), -1), at: 3) }
      for _ in 0..<Int.random(in: 0...2, using: &random) {
        let index = Int.random(in: 0..<packets.count, using: &random)
        switch Int.random(in: 0..<5, using: &random) {
        case 0: packets[index].0 = random.mutated(packets[index].0, tokens: [[3, 0, 0, 0], [0xFF, 0xFF]])
        case 1: packets[index].1 = foreign.randomElement(using: &random) ?? -1
        case 2: packets.swapAt(index, Int.random(in: 0..<packets.count, using: &random))
        case 3: packets.insert((random.bytes(40), foreign.randomElement(using: &random) ?? -1), at: index)
        default: packets[index].0 += [UInt8](repeating: 1, count: Int.random(in: 0...10_000, using: &random))
        }
      }
      for (bytes, descriptor) in packets where !bytes.isEmpty {
        _ = csystem_send_descriptor(pair.theirs.rawValue, bytes, bytes.count, descriptor)
      }
      shutdown(pair.theirs.rawValue, Int32(SHUT_WR))  // what is missing is not waited for
      do throws(ServerError) {
        let start = try link.receiveStart()
        #expect(start.request.mountpoint.utf8.first == UInt8(ascii: "/"), "\(place)")
        started += 1
      } catch {
        #expect(!error.description.isEmpty, "\(place)")
      }
    }
    #expect(started > 0)
  }

  /// One packet brings one descriptor at most: of more, none is kept open by accident.
  @Test func aSecondDescriptorIsNotKept() throws {
    try withTemporaryFolder { folder in
      let path = try folder.write("foreign", to: "foreign")
      func isOpen() throws -> Bool {
        try names(in: "/proc/self/fd").contains { name in
          var target = [CChar](repeating: 0, count: 4096)
          let count = readlink("/proc/self/fd/\(name)", &target, target.count)
          return count > 0 && target[..<count].elementsEqual(path.utf8.map { CChar(bitPattern: $0) })
        }
      }
      // Room for all of the packet, and for less: then what came is refused whole.
      for room in [8, 2] {
        let pair = try Pair()
        let receiver = FileDescriptor(owning: pair.ours)
        do {
          let foreign = try FileDescriptor.open(path, O_RDONLY)
          #expect(try isOpen())
          try sendTwo(pair.theirs.rawValue, foreign.rawValue)
        }
        var bytes = [UInt8](repeating: 0, count: 8)
        var received: Int32 = -1
        let count = csystem_receive_descriptor(receiver.rawValue, &bytes, room, &received)
        #expect(count == -1 && Errno.current == Errno(rawValue: EPROTO) && received == -1)
        #expect(try !isOpen())
      }
    }
  }

  private func sendTwo(_ socket: Int32, _ descriptor: Int32) throws {
    // struct cmsghdr by hand: length, level, type, then two descriptors.
    var control = [UInt8](repeating: 0, count: 24)
    control.withUnsafeMutableBytes { raw in
      raw.storeBytes(of: 24, toByteOffset: 0, as: Int.self)
      raw.storeBytes(of: Int32(SOL_SOCKET), toByteOffset: 8, as: Int32.self)
      raw.storeBytes(of: 1, toByteOffset: 12, as: Int32.self)  // SCM_RIGHTS
      raw.storeBytes(of: descriptor, toByteOffset: 16, as: Int32.self)
      raw.storeBytes(of: descriptor, toByteOffset: 20, as: Int32.self)
    }
    var payload = [UInt8](repeating: 7, count: 8)
    let sent = control.withUnsafeMutableBytes { control in
      payload.withUnsafeMutableBytes { payload in
        var part = iovec(iov_base: payload.baseAddress, iov_len: payload.count)
        return withUnsafeMutablePointer(to: &part) { part in
          var message = msghdr()
          message.msg_iov = part
          message.msg_iovlen = 1
          message.msg_control = control.baseAddress
          message.msg_controllen = control.count
          return sendmsg(socket, &message, 0)
        }
      }
    }
    try #require(sent == 8)
  }

  // MARK: - The helper, with a server that is none

  /// A server of a shell's making that says those packets on its descriptor 3.
  private static func script(_ folder: TemporaryFolder, _ packets: [[UInt8]], then last: String) throws -> String {
    var text = "#!/usr/bin/python3\nimport os\n"  // no shell: a server for another user starts no programs
    for (index, packet) in packets.enumerated() {
      try folder.write(packet, to: "packet\(index)")
      text += "os.write(3, open('\(folder.file("packet\(index)"))', 'rb').read())\n"
    }
    text += "os.execv('/bin/sh', ['sh', '-c', '\(last)'])\n"
    return try folder.write(text, to: "server", mode: 0o755)
  }

  /// Starts the helper on it and waits for its end; whether anything stayed mounted.
  private static func helper(
    _ folder: TemporaryFolder, server: String, mountpoint: String, _ more: [String] = []
  ) throws -> CommandResult {
    let options = try folder.write("options", to: "options")
    // The shell opens the descriptor that is named; an ordinary caller passes one without a name.
    let line =
      "exec \(builtProduct("mount-helper")) --mountpoint \"$1\" --server \"$2\" --options-fd 9 --foreground "
      + more.joined(separator: " ") + " 9<\"$3\""
    return try Command.run(["sh", "-c", line, "sh", mountpoint, server, options], timeout: 60)
  }

  @Test func theHelperMountsNothingForGarbage() throws {
    var random = SeededRandom.fromEnvironment(for: "helper")
    for round in 0..<24 {
      try withTemporaryFolder { folder in
        let mountpoint = try folder.makeFolder("mnt")
        var packets = (0..<Int.random(in: 1...4, using: &random)).map { _ in random.bytes(round % 3 == 0 ? 9000 : 20) }
        switch round % 4 {
        case 0: packets.append(Self.packet(16, HelperMessage.version + 1))  // another version
        case 1: packets.append(Self.packet(17, 0, random.bytes(100)))  // ready before anything is mounted
        case 2: packets.append(Self.packet(18, 0))  // a log without a log
        default: break
        }
        packets.removeAll { $0.isEmpty || $0.starts(with: Self.packet(16, HelperMessage.version)) }
        // A server that says nothing at all is waited for.
        if packets.isEmpty { packets = [[0]] }
        let server = try Self.script(folder, packets, then: "exec sleep 30")
        let result = try Self.helper(folder, server: server, mountpoint: mountpoint)
        #expect(result.status == 1, "seed \(random.seed), round \(round): \(result.errors)")
        #expect(!Mounts.isMounted(mountpoint))
        #expect(result.errors.contains("breaks the protocol"), "\(result.errors)")
      }
    }
  }

  /// A server that asks for the mount and then talks nonsense: it is mounted, and gone again.
  @Test func theHelperUnmountsBehindAServerThatTurnsBad() throws {
    for packets in [
      [Self.packet(16, HelperMessage.version), Self.packet(16, HelperMessage.version)],
      [Self.packet(16, HelperMessage.version), [1, 2, 3]],
      [Self.packet(16, HelperMessage.version), Self.packet(99, 0)],
    ] {
      try withTemporaryFolder { folder in
        let mountpoint = try folder.makeFolder("mnt")
        let server = try Self.script(folder, packets, then: "exec sleep 30")
        let result = try Self.helper(folder, server: server, mountpoint: mountpoint)
        #expect(result.status == 1)
        #expect(!Mounts.isMounted(mountpoint), "\(result.errors)")
      }
    }
  }

  /// Nothing of the caller's stays open in the helper or the server: a lock or a pipe of a script would be held for
  /// days.
  @Test func theHelperKeepsNothingOfItsCaller() throws {
    try withTemporaryFolder { folder in
      let mountpoint = try folder.makeFolder("mnt")
      let server = try folder.write(
        "#!/bin/sh\nls -l /proc/$PPID/fd /proc/$$/fd > \(folder.file("open")) 2>&1\nexit 3\n", to: "server", mode: 0o755
      )
      let options = try folder.write("options", to: "options")
      let held = try folder.write("held", to: "held-by-the-caller")
      let line =
        "exec \(builtProduct("mount-helper")) --mountpoint \"$1\" --server \"$2\" --options-fd 9 --foreground "
        + "9<\"$3\" 4<\"$4\" 7>>\"$4\" 8<\"$4\""
      let result = try Command.run(["sh", "-c", line, "sh", mountpoint, server, options, held])
      #expect(result.status == 1)
      let open = String(decoding: try contents(of: folder.file("open")), as: UTF8.self)
      #expect(open.contains("/options"), "\(open)")
      #expect(!open.contains("held-by-the-caller"), "\(open)")
    }
  }

  /// Root mounts, for a user or itself, and a folder on the path has become a link: nothing is mounted where it leads.
  @Test(arguments: [["--user", "nobody"], []])
  func theHelperFollowsNoLink(_ user: [String]) throws {
    guard TestUser.canSwitch else { return }
    try withTemporaryFolder(open: true) { folder in
      let victim = try folder.makeFolder("victim/mnt")
      try #require(symlink(folder.file("victim"), folder.file("users")) == 0)
      try #require(symlink(victim, folder.file("link")) == 0)
      let server = try Self.script(
        folder, [Self.packet(16, HelperMessage.version), Self.packet(99, 0)], then: "exec sleep 30")
      let through = folder.file("users/mnt")
      for path in [through, folder.file("link")] {
        let result = try Self.helper(folder, server: server, mountpoint: path, user)
        #expect(result.status == 1)
        #expect(result.errors.contains("symbolic link"), "\(result.errors)")
        #expect(!Mounts.isMounted(victim))
      }
      // Nor is a folder removed there because a failed mount had made one of that name.
      let failed = try folder.write("#!/bin/sh\nexit 1\n", to: "failing", mode: 0o755)
      _ = try Self.helper(folder, server: failed, mountpoint: through, user + ["--made-folders", "2"])
      #expect(access(victim, F_OK) == 0)
      // Without a link it is mounted, and unmounted again.
      let direct = try Self.helper(folder, server: server, mountpoint: victim, user)
      #expect(direct.errors.contains("message 99"), "\(direct.errors)")
      #expect(!Mounts.isMounted(victim))
    }
  }
}
