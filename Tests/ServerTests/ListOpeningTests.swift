import Base
import CSystem
import FoundationEssentials
import Glibc
import Storing
import TestSupport
import Testing

@testable import Server

/// The lists that the server of a mount for another user may not open, and its mount helper.
@Suite(.enabled(if: csystem_landlock_version() >= 1))
struct ListOpeningTests {
  private final class Peer: Sendable {
    let link: HelperLink
    let socket: FileDescriptor

    /// `opens`: what the helper says in SESSION.
    init(_ request: MountRequest, opens: UInt32) throws {
      var ends: [Int32] = [-1, -1]
      try #require(socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue), 0, &ends) == 0)
      link = HelperLink(owning: ends[0])
      socket = FileDescriptor(owning: ends[1])
      let options = FileDescriptor(owning: csystem_make_memory_file("test"))
      try request.encoded().withUnsafeBytes { try options.writeFully($0, at: 0) }
      send(1, HelperMessage.version, options.rawValue)
      send(5, opens, options.rawValue)
      send(3, 0)
      _ = try link.receiveStart()
      link.watch(onVerdict: { [heard] _ in heard.raise() }, onGone: {})
    }

    private let heard = Signal()
    /// Returns when the server has taken all that was sent.
    func settle() {
      send(7, 1)
      #expect(heard.wait(seconds: 60))
    }

    func send(_ type: UInt32, _ value: UInt32, _ descriptor: Int32 = -1, _ words: String = "") {
      let packet = withUnsafeBytes(of: (type, value)) { Array($0) } + Array(words.utf8)
      #expect(csystem_send_descriptor(socket.rawValue, packet, packet.count, descriptor) == packet.count)
    }

    /// Waits for the next OPEN: its number.
    func nextRequest() -> UInt32? {
      var packet = [UInt8](repeating: 0, count: 100)
      var descriptor: Int32 = -1
      let count = csystem_receive_descriptor(socket.rawValue, &packet, packet.count, &descriptor)
      let (type, number) = packet.withUnsafeBytes {
        ($0.loadUnaligned(as: UInt32.self), $0.loadUnaligned(fromByteOffset: 4, as: UInt32.self))
      }
      return count == 8 && type == 23 && descriptor < 0 ? number : nil
    }
  }

  /// What a thread gets that the kernel keeps from all files, as the server from those that are new.
  private func open(_ request: MountRequest, _ peer: Peer) -> Result<[[UInt8]: Int64], StoreError> {
    let result = Lock<Result<[[UInt8]: Int64], StoreError>>(.success([:]))
    OwnedThread(name: "restricted") {
      let rules = FileDescriptor(owning: csystem_landlock_begin(csystem_landlock_version()))
      #expect(csystem_landlock_end(rules.rawValue) == 0)
      do throws(StoreError) {
        let files = try ManifestImport.openedAnew(request, peer.link)
        let inodes = files.mapValues { Int64(clamping: (try? $0.take()?.status().st_ino) ?? 0) }
        result.withLock { $0 = .success(inodes) }
      } catch {
        result.withLock { $0 = .failure(error) }
      }
    }.join()
    return result.withLock { $0 }
  }

  private func withLists(_ opens: UInt32, _ body: (MountRequest, Peer) throws -> Void) throws {
    try withTemporaryFolder { folder in
      var request = MountRequest(mountpoint: "/m", manifest: try folder.write("", to: "list"))
      request.named = [
        NamedList("url=http://localhost/list"), NamedList("more=\(try folder.write("", to: "more"))"),
      ]
      let peer = try Peer(request, opens: opens)
      defer { peer.link.close() }
      try body(request, peer)
    }
  }

  private func inode(_ path: String) throws -> Int64 { Int64(try FileDescriptor.open(path, O_RDONLY).status().st_ino) }

  @Test func ofAHelperOfBeforeTheMessageSaysWhatHelps() throws {
    try withLists(0) { request, peer in
      guard case .failure(let error) = open(request, peer) else {
        Issue.record("it was opened")
        return
      }
      #expect(error.kind == .invalid)
      #expect(error.message.contains("\(request.manifest) was replaced by another file"), "\(error)")
      #expect(error.message.contains("run 'mediafs upgrade /m'"), "\(error)")
    }
  }

  @Test func eachFileComesOnceForItsList() throws {
    try withLists(1) { request, peer in
      let lists = [request.manifest, request.named[1].place]
      let inodes = try lists.map(inode)
      for round in 0..<2 {
        let answering = OwnedThread(name: "helper") {
          guard let number = peer.nextRequest() else {
            Issue.record("no request")
            return
          }
          // What is not for this request counts for nothing.
          peer.send(13, number &- 1, -1, "stale")
          peer.send(13, number &+ 1, -1, "wrong")
          for list in lists {
            guard let file = try? FileDescriptor.open(list, O_RDONLY) else { return }
            peer.send(13, number, file.rawValue)
          }
        }
        #expect(open(request, peer) == .success([[]: inodes[0], Array("more".utf8): inodes[1]]), "\(round)")
        answering.join()
      }
    }
  }

  @Test func aRefusalIsTheReason() throws {
    try withLists(1) { request, peer in
      let answering = OwnedThread(name: "helper") {
        guard let number = peer.nextRequest(), let file = try? FileDescriptor.open("/", O_RDONLY) else { return }
        peer.send(13, number, file.rawValue)
        peer.send(13, number, -1, "the second one is away")
      }
      #expect(open(request, peer) == .failure(StoreError(kind: .invalid, message: "the second one is away")))
      answering.join()
    }
  }

  /// A file that was deleted would keep its space on the disk.
  @Test func nothingStaysOpenAfterwards() throws {
    try withLists(1) { request, peer in
      let lists = [request.manifest, request.named[1].place]
      let answering = OwnedThread(name: "helper") {
        guard let number = peer.nextRequest(), let file = try? FileDescriptor.open(lists[0], O_RDONLY) else { return }
        peer.send(13, number, file.rawValue)
        peer.send(13, number, -1, "the second one is away")
        // What comes late is of no use.
        peer.send(13, number, file.rawValue)
      }
      guard case .failure = open(request, peer) else {
        Issue.record("it was opened")
        return
      }
      answering.join()
      peer.settle()
      let files = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")
        .compactMap { try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)") }
      #expect(!files.contains(lists[0]))
    }
  }

  /// The helper's end of the link does not wait, and the helper sends by it as well.
  @Test func aListIsSentBesideAFloodOfOthers() throws {
    var ends: [Int32] = [-1, -1]
    try #require(socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue), 0, &ends) == 0)
    let opener = HelperLink(owning: ends[0])
    let server = FileDescriptor(owning: ends[1])
    let end = ends[0]
    try #require(csystem_fcntl(end, F_SETFL, O_NONBLOCK) == 0)
    let isOver = Lock(false)
    let flood = OwnedThread(name: "helper") {
      let packet = [UInt8](repeating: 0, count: 100)
      while !isOver.withLock({ $0 }) { _ = send(end, packet, packet.count, Int32(MSG_DONTWAIT | MSG_NOSIGNAL)) }
    }
    let lists = 300
    let reading = OwnedThread(name: "server") { [number = server.rawValue] in
      var (packet, came) = ([UInt8](repeating: 0, count: 200), 0)
      while came < lists {
        var descriptor: Int32 = -1
        if csystem_receive_descriptor(number, &packet, packet.count, &descriptor) <= 0 { return }
        if descriptor < 0 { continue }
        came += 1
        close(descriptor)
      }
    }
    let file = try FileDescriptor.open("/dev/null", O_RDONLY)
    do throws(ServerError) {
      for _ in 0..<lists { try opener.sendList(1, file) }
    } catch {
      Issue.record("\(error)")
      shutdown(end, Int32(SHUT_RDWR))
    }
    reading.join()
    isOver.withLock { $0 = true }
    flood.join()
    withExtendedLifetime(server) {}
  }
}
