import Base
import Glibc
import Testing

@testable import Control

@Suite struct ConnectTests {
  private func failure(_ store: String) -> ControlFailure? {
    do throws(ControlFailure) {
      _ = try ControlClient.connect(store: store)
      return nil
    } catch { return error }
  }

  @Test func noStoreNoSocketAndNoListenerAreAllNoServer() throws {
    let folder = try TemporaryFolder()
    #expect(failure(folder.path + "/none")?.kind == .notRunning)
    #expect(failure(folder.path)?.kind == .notRunning)
    // A socket file that a killed server left behind.
    let descriptor = FileDescriptor(owning: socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0))
    let store = try FileDescriptor.open(folder.path, O_RDONLY | O_DIRECTORY)
    try #require(withControlAddress(in: store) { bind(descriptor.rawValue, $0, $1) } == 0)
    #expect(failure(folder.path)?.kind == .notRunning)
  }

  @Test func aStaleSocketIsReplaced() throws {
    let folder = try TemporaryFolder()
    let identity = ServerIdentity(pid: 1, mountpoint: "/m", program: "test")
    do {
      let descriptor = FileDescriptor(owning: socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0))
      let store = try FileDescriptor.open(folder.path, O_RDONLY | O_DIRECTORY)
      try #require(withControlAddress(in: store) { bind(descriptor.rawValue, $0, $1) } == 0)
    }
    let listener = try ControlListener(store: folder.path, identity: identity, handler: FakeServer())
    #expect(try ControlClient.connect(store: folder.path).hello() == identity)
    listener.stop()
    listener.stop()
    #expect(failure(folder.path)?.kind == .notRunning)
  }

  @Test func aSilentServerIsNotWaitedForWithoutEnd() throws {
    let folder = try TemporaryFolder()
    let descriptor = FileDescriptor(owning: socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0))
    let store = try FileDescriptor.open(folder.path, O_RDONLY | O_DIRECTORY)
    try #require(withControlAddress(in: store) { bind(descriptor.rawValue, $0, $1) } == 0)
    try #require(listen(descriptor.rawValue, 1) == 0)
    let client = try ControlClient.connect(store: folder.path)
    #expect(!client.waitForEnd(seconds: 0.05))
  }

  @Test func anotherUserIsRefused() throws {
    // The socket's mode and the store's already keep others out; the check of the peer's user is a second lock. As root
    // the first is opened and another user comes; as an ordinary user, who cannot become another, the owner is made
    // another.
    let isRoot = geteuid() == 0
    let folder = try TemporaryFolder()
    let handler = FakeServer()
    let listener = try ControlListener(
      store: folder.path, identity: ServerIdentity(pid: 1, mountpoint: "/m", program: "test"), handler: handler,
      owner: isRoot ? 0 : geteuid() + 1)
    defer { listener.stop() }
    if isRoot {
      try #require(chmod(folder.path, 0o755) == 0)
      try #require(chmod(folder.path + "/control", 0o666) == 0)
      let program =
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('\(folder.path)/control'); "
        + "print(s.recv(1000).decode())"
      let answer = try output(
        "setpriv --reuid=65534 --regid=65534 --clear-groups /usr/bin/python3 -c \"\(program)\" 2>&1")
      #expect(answer.contains("\"refused\""), "\(answer)")
    } else {
      let client = try ControlClient.connect(store: folder.path)
      #expect(throws: ControlFailure(.refused, "only the user who mounted this and root may use its server")) {
        try client.stop()
      }
    }
    #expect(!handler.state.withLock { $0.stopped })
  }

  private func output(_ command: String) throws -> String {
    let pipe = try #require(popen(command, "r"))
    var bytes: [UInt8] = []
    while case let byte = getc(pipe), byte != EOF { bytes.append(UInt8(byte)) }
    pclose(pipe)
    return String(decoding: bytes, as: UTF8.self)
  }
}
