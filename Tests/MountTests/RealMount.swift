import Base
import CSystem
import Glibc
import Reading

@testable import Mount

/// A synthetic filesystem on a real mount, with a scratch folder beside it. `end` takes both away.
final class RealMount: Sendable {
  let folder: String
  let path: String
  let fileSystem: SyntheticFileSystem
  let session: FuseSession
  /// What a helper keeps for the next server.
  let memory: SessionMemory
  let device: Int32
  let options: MountOptions
  let registrar: Registrar
  /// How `run` ended, once it did.
  let ending = Lock<Result<Void, MountError>?>(nil)
  private let server = Lock<[OwnedThread]>([])

  /// `notices`: the socket to a helper that writes notifications; nil: the session writes them. `waking`: the socket to
  /// one that starts wakers; nil: none does.
  init(
    _ nodes: [SyntheticFileSystem.Node], notices: consuming FileDescriptor? = nil,
    waking: consuming FileDescriptor? = nil, change: (inout MountOptions) -> Void = { _ in }
  ) throws {
    var template = Array("\(getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp")/mediafs-mount-XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else { throw Errno.current }
    folder = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    path = folder + "/mnt"
    guard mkdir(path, 0o755) == 0 else { throw Errno.current }
    var options = MountOptions(mountedAt: 1_700_000_000)
    change(&options)
    self.options = options
    memory = try SessionMemory()
    fileSystem = SyntheticFileSystem(nodes)
    let mounted = try mountFuse(at: path)
    device = duplicate(mounted.rawValue)
    let ends = try makeSocketPair()
    registrar = Registrar(device: device, socket: FileDescriptor(owning: ends.1))
    session = try FuseSession(
      device: mounted, memory: memory, notices: notices, backing: FileDescriptor(owning: ends.0), waking: waking,
      serving: fileSystem, options: options)
    serve()
  }

  /// The next server of the same mount. The threads of the last one have left; what they parked, they left parked.
  init(after last: RealMount, _ nodes: [SyntheticFileSystem.Node]) throws {
    (folder, path, options, memory) = (last.folder, last.path, last.options, last.memory)
    device = last.device
    fileSystem = SyntheticFileSystem(nodes)
    let ends = try makeSocketPair()
    registrar = Registrar(device: device, socket: FileDescriptor(owning: ends.1))
    session = try FuseSession(
      device: FileDescriptor(owning: duplicate(device)), memory: memory, backing: FileDescriptor(owning: ends.0),
      serving: fileSystem, options: options)
    serve()
  }

  private func serve() {
    fileSystem.connect(session)
    let serving = OwnedThread(name: "test-serve") {
      let result: Result<Void, MountError>
      do throws(MountError) {
        try self.session.run {}
        result = .success(())
      } catch { result = .failure(error) }
      self.ending.withLock { $0 = result }
    }
    let answering = OwnedThread(name: "test-answer") {
      while !self.fileSystem.state.withLock({ $0.isEnding }) {
        self.fileSystem.answerParked()
        usleep(2000)
      }
    }
    server.withLock { $0 = [serving, answering] }
  }

  /// Ends the helper's part: when no session has the device open, the kernel closes the connection.
  func forgetDevice() { close(device) }

  /// Ends the threads as they are: what is parked is not answered.
  func leave() {
    session.stop()
    fileSystem.state.withLock { $0.isEnding = true }
    for thread in server.withLock({ threads in
      defer { threads = [] }; return threads
    }) { thread.join() }
  }

  /// Unmounts, whatever is open or parked, and waits for the threads.
  func end() {
    session.stop()  // a server that stopped is unmounted as well as one that did not
    umount(force: true)
    leave()
    forgetDevice()
    rmdir(path)
    _ = Program.run("rm -r \(folder)")
  }

  func umount(force: Bool) {
    if geteuid() == 0 {
      umount2(path, force ? Int32(MNT_FORCE | MNT_DETACH) : 0)
    } else {
      _ = Program.run("fusermount3 -u \(force ? "-z" : "") \(path)")
    }
  }

  /// Runs a shell script in the mount; `REF` is the scratch folder.
  func sh(_ script: String) -> Program.Result {
    Program.run("export LC_ALL=C REF=\(folder); cd \(path) && { \(script)\n}")
  }

  /// Writes what `node` should hold to `name` in the scratch folder.
  func writeReference(_ node: SyntheticFileSystem.Node, _ name: String) throws {
    let file = try FileDescriptor.open("\(folder)/\(name)", O_RDWR | O_CREAT)
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: Int(node.size), alignment: 16)
    defer { buffer.deallocate() }
    fill(buffer, node.inode, at: 0)
    try file.writeFully(UnsafeRawBufferPointer(buffer), at: 0)
  }
}

func makeSocketPair() throws -> (Int32, Int32) {
  var ends: [Int32] = [-1, -1]
  guard socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue), 0, &ends) == 0 else { throw Errno.current }
  return (ends[0], ends[1])
}

private func duplicate(_ device: Int32) -> Int32 { fcntl(device, F_DUPFD_CLOEXEC, 3) }

/// Mounts as a helper would and returns the descriptor: by mount(2) for root, else through fusermount3.
private func mountFuse(at path: String) throws -> FileDescriptor {
  if geteuid() == 0 {
    let device = try FileDescriptor.open("/dev/fuse", O_RDWR)
    let options = "fd=\(device.rawValue),rootmode=40000,user_id=0,group_id=0,allow_other,max_read=65536"
    // 6: MS_NOSUID and MS_NODEV, which two modules give in different types.
    guard mount("mediafs-test", path, "fuse", 6, options) == 0 else {
      throw Errno.current
    }
    return device
  }
  var pair: [Int32] = [-1, -1]
  guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &pair) == 0 else { throw Errno.current }
  let ours = FileDescriptor(owning: pair[0])
  let theirs = FileDescriptor(owning: pair[1])
  let result = Program.run("_FUSE_COMMFD=\(theirs.rawValue) fusermount3 -o max_read=65536 -- \(path)")
  guard result.status == 0 else { throw Errno.accessDenied }
  var byte: UInt8 = 0
  var device: Int32 = -1
  guard csystem_receive_descriptor(ours.rawValue, &byte, 1, &device) > 0, device >= 0 else { throw Errno.io }
  return FileDescriptor(owning: device)
}

/// Waits until `condition` holds; false when it does not within 60 seconds (a bound for a broken run, no measure).
func eventually(_ condition: () -> Bool) -> Bool {
  for _ in 0..<12_000 {
    if condition() { return true }
    usleep(5000)
  }
  return condition()
}
