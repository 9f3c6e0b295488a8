import Base
import Control
import Glibc
import TestSupport
import Testing

@testable import Server

/// How a server agrees with its helper on an upgrade.
@Suite struct HandoverTests {
  private static let program = ProgramFile(device: 5, inode: 0x1_0000_0007)

  /// A server and its helper's end of the link. `answers`: what the helper says to each UPGRADE, in turn.
  /// `isHeld`: whether the helper takes its time. `ends` counts how often the server is ended.
  private func withServer(
    answers: [String?], patience: Double = 10, isHeld: Lock<Bool> = Lock(false), ends: Lock<Int> = Lock(0),
    _ body: (Handover) throws -> Void
  ) throws {
    var sockets: [Int32] = [-1, -1]
    try #require(socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue), 0, &sockets) == 0)
    let helper = FileDescriptor(owning: sockets[0])
    let link = HelperLink(owning: sockets[1])
    let handover = Handover(link, failedUpgrade: nil, patience: patience) { ends.withLock { $0 += 1 } }
    link.watch(onVerdict: handover.take, onGone: {})
    let number = helper.rawValue
    let asked = Lock<[[UInt8]]>([])
    let thread = OwnedThread(name: "helper") {
      for answer in answers {
        var packet = [UInt8](repeating: 0, count: 100)
        let count = recv(number, &packet, packet.count, 0)
        asked.withLock { $0.append(Array(packet.prefix(max(0, count)))) }
        while isHeld.withLock({ $0 }) { usleep(1000) }
        let text = Array((answer ?? "").utf8)
        let reply: [UInt8] = [7, 0, 0, 0, answer == nil ? 0 : 1, 0, 0, 0] + text
        _ = send(number, reply, reply.count, Int32(MSG_NOSIGNAL))
      }
    }
    try body(handover)
    link.close()
    thread.join()
    #expect(asked.withLock { $0.count { !$0.isEmpty } } == answers.count)
    for packet in asked.withLock({ $0 }) where !packet.isEmpty {
      #expect(packet == [19] + [UInt8](repeating: 0, count: 7) + [5, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0])
    }
  }

  private func refusal(_ handover: Handover) -> ControlFailure? {
    do throws(ControlFailure) {
      try handover.agree(to: Self.program)
      return nil
    } catch { return error }
  }

  @Test func onlyAServerThatServesIsUpgradedAndOnlyOnce() throws {
    try withServer(answers: ["another path", nil]) { handover in
      #expect(refusal(handover)?.kind == .busy)  // the helper is not even asked
      #expect(!handover.facts.serves)
      handover.serve()
      #expect(handover.facts.serves)
      #expect(refusal(handover) == ControlFailure(.failed, "another path"))
      #expect(!handover.isAgreed)
      #expect(refusal(handover) == nil)
      #expect(handover.isAgreed)
      #expect(refusal(handover)?.kind == .busy)
    }
  }

  /// A service restarts: the helper has the server end for the next one, which nobody asked for.
  @Test func aHelperThatLeavesEndsTheServer() throws {
    let ends = Lock(0)
    try withServer(answers: [], ends: ends) { handover in
      handover.serve()
      handover.take("a refusal that nobody waits for")
      #expect(ends.withLock { $0 } == 0 && !handover.isAgreed)
      handover.take(nil)
      #expect(ends.withLock { $0 } == 1 && handover.isAgreed)
      #expect(refusal(handover)?.kind == .busy)
    }
  }

  /// SIGTERM ends the mount, whatever the helper has just agreed to.
  @Test func aServerThatIsToldToEndIsNotUpgraded() throws {
    try withServer(answers: [nil]) { handover in
      handover.serve()
      #expect(refusal(handover) == nil)
      handover.cancel()
      #expect(!handover.isAgreed)
    }
    try withServer(answers: []) { handover in
      handover.serve()
      handover.cancel()
      #expect(refusal(handover)?.kind == .busy)
      handover.take(nil)  // of an earlier question
      #expect(!handover.isAgreed)
    }
  }

  /// The command has given up. A helper that then agrees waits for the server's end, and kills it after a while.
  @Test(arguments: [nil, "another path"]) func anAnswerThatComesTooLate(_ answer: String?) throws {
    let (isHeld, ends) = (Lock(true), Lock(0))
    try withServer(answers: answer == nil ? [nil] : [answer, nil], patience: 1, isHeld: isHeld, ends: ends) {
      handover in
      handover.serve()
      #expect(refusal(handover)?.message.contains("does not answer") == true)
      #expect(refusal(handover)?.kind == .busy)
      isHeld.withLock { $0 = false }
      if answer == nil {
        #expect(eventually { ends.withLock { $0 } == 1 })
        #expect(handover.isAgreed)
      } else {
        // Nothing came of it: another upgrade may be asked for.
        #expect(eventually { refusal(handover) == nil })
        #expect(handover.isAgreed && ends.withLock { $0 } == 0)
      }
    }
  }
}
