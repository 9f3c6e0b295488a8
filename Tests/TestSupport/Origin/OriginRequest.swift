import Base

/// A request as the origin got it.
package struct OriginRequest: Sendable {
  /// Counts the origin's requests, from 1.
  package let id: Int
  /// Which connection it came on; counts the connections, from 1.
  package let connection: Int
  /// Which of its connection's requests it is, from 1: above 1 it came on a kept connection.
  package let indexOnConnection: Int
  /// Which of the requests of its path it is, from 1.
  package let indexOfPath: Int
  /// Seconds from the origin's start until its head was complete.
  package let time: Double
  /// `GET`, `HEAD`, …
  package let method: String
  /// The target as it was sent.
  package let target: String
  /// The target's path, percent-decoded, without the query.
  package let path: String
  /// `HTTP/1.1` or `HTTP/1.0`.
  package let version: String
  /// Its fields, in order, as they were sent.
  package let headers: [HTTPHeader]
  /// The one range it asked for, as the resource's size makes it; nil without a (usable) Range field.
  package internal(set) var range: ByteRange?

  /// The value of its first field of that name, in any case of letters.
  package func header(_ name: String) -> String? {
    let wanted = name.lowercased()
    return headers.first { $0.name.lowercased() == wanted }?.value
  }
}

/// How the origin's answer to a request ended.
package enum OriginEnd: String, Sendable {
  /// All of it was written.
  case complete
  /// The client went away.
  case clientClosed
  /// The origin broke it off, as a fault told it to.
  case fault
  /// The origin stopped, or dropped its connections.
  case stopped
}

/// One line of the origin's log: a request and what became of it.
package struct OriginLogEntry: Sendable {
  /// Bytes of one generation of the resource.
  package struct Part: Sendable, Equatable {
    /// The generation.
    package let generation: UInt64
    /// Which bytes were written to the socket.
    package internal(set) var range: ByteRange
  }

  /// The request.
  package internal(set) var request: OriginRequest
  /// The status that was sent, nil while none was.
  package internal(set) var status: Int?
  /// Seconds from the origin's start until the first byte of the response was sent.
  package internal(set) var firstByteTime: Double?
  /// Which bytes of the resource were written to the socket; what is still in its buffers when the client leaves
  /// counts.
  package internal(set) var sent: [Part] = []
  /// Bytes of the body that were written, with what a coding or framing adds.
  package internal(set) var bodyBytes: Int64 = 0
  /// How it ended; nil while it goes on.
  package internal(set) var end: OriginEnd?
  /// Seconds from the origin's start until it ended.
  package internal(set) var endTime: Double?

  /// How many of the resource's bytes were written.
  package var bytesSent: Int64 { sent.reduce(0) { $0 + $1.range.count } }
}
