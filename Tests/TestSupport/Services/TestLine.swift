import Base
import Glibc

/// A line with real TCP between two network namespaces: the program test-line, which says what it does. Any thread may
/// call. ``stop()`` must be called; ``withLine(roundTrip:rate:queue:loss:_:)`` does.
package final class TestLine: Sendable {
  /// The server's address.
  package static let serverAddress = "10.9.0.1"
  /// Whether this machine can have one; otherwise ``reason``.
  package static let isPossible: Bool = {
    do {
      _ = try FileDescriptor.open("/dev/net/tun", O_RDWR)
      return try Command.run(["unshare", "--net", "true"]).succeeded
    } catch {
      return false
    }
  }()
  /// Whether the kernel has BBR (it may be a module that is not loaded).
  package static let hasBBR =
    text(of: "/proc/sys/net/ipv4/tcp_available_congestion_control").split(whereSeparator: \.isWhitespace)
    .contains("bbr")
  /// Why a test of it is skipped.
  package static let reason = "This machine has no /dev/net/tun or no network namespaces for us."

  /// What a command begins with that is to run at the server's end.
  package let inServer: [String]
  /// What a command begins with that is to run at the client's end.
  package let inClient: [String]
  private let process: BackgroundProcess

  /// Starts one.
  ///
  /// - Parameters:
  ///   - roundTrip: in seconds.
  ///   - rate: bytes a second towards the client.
  ///   - queue: bytes that the router holds for the client; it drops what comes on top.
  ///   - loss: the share of packets that get lost.
  ///   - congestion: the congestion control at both ends; nil: the machine's.
  package init(roundTrip: Double, rate: Double, queue: Int, loss: Double = 0, congestion: String? = nil) throws {
    process = try BackgroundProcess(
      [builtProduct("test-line"), "\(roundTrip * 1000)", "\(rate)", "\(queue)", "\(loss)"]
        + (congestion.map { [$0] } ?? []))
    _ = process.waitForOutput("\n")
    let words = process.standardOutputSoFar.split(whereSeparator: \.isWhitespace)
    guard words.count == 3, words[0] == "ready" else {
      process.terminate(grace: 0)
      throw MountFailure(description: "test-line: \(process.standardErrorSoFar)")
    }
    inServer = ["nsenter", "--net=\(words[1])"]
    inClient = ["nsenter", "--net=\(words[2])"]
  }

  /// Takes the line away. Its namespaces last as long as a process is in them.
  package func stop() { process.terminate() }
}

/// Lends a line and takes it away afterwards.
package func withLine<Result>(
  roundTrip: Double, rate: Double, queue: Int, loss: Double = 0, congestion: String? = nil,
  _ body: (TestLine) throws -> Result
) throws -> Result {
  let line = try TestLine(roundTrip: roundTrip, rate: rate, queue: queue, loss: loss, congestion: congestion)
  defer { line.stop() }
  return try body(line)
}
