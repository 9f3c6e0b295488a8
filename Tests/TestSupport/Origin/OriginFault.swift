/// What the test origin does wrong, on purpose. Several may be given for one request; each changes what the ones before
/// it left, so a later one wins where two speak of the same thing.
///
/// "After N bytes" counts the bytes of the resource (or of the text) in that one response, without what a coding adds.
package enum OriginFault: Sendable {
  // MARK: The connection

  /// The connection is reset and the whole origin refuses connections for that many seconds (nil: until
  /// ``Origin/setUp(_:)``).
  case goDown(seconds: Double?)
  /// The connection is reset before a byte of the response.
  case resetBeforeHeaders
  /// The connection is closed in order before a byte of the response.
  case closeBeforeHeaders
  /// Nothing is ever answered.
  case stallBeforeHeaders
  /// Reset after that many bytes (which do arrive).
  case resetAfter(Int64)
  /// Closed in order after that many bytes, short of what was announced.
  case closeAfter(Int64)
  /// Nothing more is ever sent after that many bytes.
  case stallAfter(Int64)
  /// `bytesPerSecond` from the byte `after` on; 1 is a trickle that never ends.
  case slow(bytesPerSecond: Double, after: Int64 = 0)
  /// Seconds added to the latency of this response.
  case delay(Double)
  /// Header fields without end, at that rate.
  case endlessHeaders(bytesPerSecond: Double = 10_000)
  /// One header line without end, as fast as it is read.
  case endlessHeaderLine
  /// Interim answers (102) without end, so many seconds apart, and never a final one.
  case interimAnswers(secondsApart: Double)

  // MARK: The status

  /// That status with a short text body.
  case status(Int, retryAfter: RetryAfter? = nil)
  /// A redirect. `location` is sent as it is: relative, to another origin, `file:///…`, `ftp://…`.
  case redirect(Int = 302, to: String)
  /// A redirect to the same target, for ever.
  case redirectLoop(Int = 302)
  /// HEAD gets that status; other methods are answered well.
  case refuseHead(status: Int = 405)
  /// A page of HTML with status 200 whatever was asked, as a captive portal sends it.
  case page(String = "<!DOCTYPE html><html><title>Log in</title><p>Please log in to this network.</html>")
  /// 416, with `Content-Range: bytes */total` when a total is given.
  case rangeNotSatisfiable(total: Int64? = nil)

  // MARK: Ranges and framing

  /// Range is ignored: 200 and the whole. `everyNth` 1 always, 2 on the second, fourth, … request of the path.
  case ignoreRange(everyNth: Int = 1)
  /// If-Range is ignored: 206 of whatever is there now.
  case ignoreIfRange
  /// 206 with something wrong about its range.
  case contentRange(RangeMistake)
  /// 206 as multipart/byteranges of one part.
  case multipart
  /// Neither Content-Length nor chunks: the body ends when the connection does.
  case noContentLength
  /// Transfer-Encoding: chunked, without Content-Length.
  case chunked(trailers: Bool = false)
  /// HTTP/1.0: no chunks, no kept connection.
  case http10
  /// Content-Length is wrong by that many bytes. Too large: the body ends short. Too small: it goes on behind its end.
  case contentLengthOff(by: Int64)
  /// Content-Encoding: gzip, which nobody asked for.
  case gzip
  /// No Accept-Ranges.
  case noAcceptRanges

  // MARK: Versions

  /// The ETag is in turn each of these, with every request of the path.
  case flappingTag([String])
  /// The resource gets its next generation once that many bytes of this body are sent, and the body goes on with the
  /// new bytes under the old headers.
  case nextGenerationAfter(Int64)

  /// Retry-After.
  package enum RetryAfter: Sendable {
    /// As seconds.
    case seconds(Int)
    /// As the date that many seconds ahead.
    case date(secondsAhead: Int)
    /// That text.
    case text(String)
  }

  /// What is wrong about a 206.
  package enum RangeMistake: Sendable {
    /// Range and body start that many bytes later than asked (earlier when negative); both say so.
    case otherStart(by: Int64)
    /// Range and body end that many bytes earlier than asked; both say so.
    case shorter(by: Int64)
    /// The total is that number; the rest is right.
    case total(Int64)
    /// The total is `*`.
    case unknownTotal
    /// No Content-Range at all.
    case missing
    /// That text as Content-Range, the body being what was asked for.
    case text(String)
  }
}
