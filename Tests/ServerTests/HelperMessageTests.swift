import Base
import TestSupport
import Testing

@testable import Mount
@testable import Server

/// The two ends of the helper's protocol are in two languages, and each declares the numbers of its messages.
@Suite struct HelperMessageTests {
  @Test func theHelperDeclaresTheSameNumbers() throws {
    let header = #filePath.split(separator: "/").dropLast(3).reduce("") { "\($0)/\($1)" } + "/mount-helper/link.h"
    let text = try Command.succeed(["cat", header])
    var theirs: [UInt32: String] = [:]
    for match in text.matches(of: #/MESSAGE_(\w+) = (\d+)/#) {
      theirs[try #require(UInt32(match.2))] = match.1.lowercased()
    }
    var ours: [UInt32: String] = [:]
    for number in 0...100 as ClosedRange<UInt32> {
      if let message = HelperMessage(rawValue: number) { ours[number] = "\(message)" }
      if let message = BackingFiles.Message(rawValue: number) { ours[number] = "\(message)" }
      if let message = WakingHelper.Message(rawValue: number) { ours[number] = "\(message)" }
    }
    #expect(ours == theirs && ours.count == 26)
    #expect(text.contains("PROTOCOL_VERSION = \(HelperMessage.version),"))
    #expect(text.contains("STATUS_HANDED_OVER = \(HelperMessage.handedOver) "))
    #expect(text.contains("PAYLOAD_LIMIT = \(HelperMessage.payloadLimit) "))
  }
}
