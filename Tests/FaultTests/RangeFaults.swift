import Glibc
import TestSupport

/// Ranges, lengths, codings and validators.
enum RangeFaults {
  static let all: [FaultCase] = ranges + unsatisfiable + framing + validators

  private static let whole: [OriginFault] = [.ignoreRange(), .noAcceptRanges]

  static let ranges: [FaultCase] = [
    .faults("HEAD is refused", [.refuseHead()], .bytes),
    .faults("Range is ignored", whole, .bytes),
    .faults("Range is ignored at first", whole, next: 1, .bytes),
    .faults("every second Range is ignored", [.ignoreRange(everyNth: 2)], .bytes),
    .faults("every third Range is ignored", [.ignoreRange(everyNth: 3)], .bytes),
    .faults("206 of a later range", [.contentRange(.otherStart(by: 4096))], .bytes),
    .from(1, "206 of an earlier range", [.contentRange(.otherStart(by: -4096))], .bytes),
    .faults("206 of a shorter range", [.contentRange(.shorter(by: 1000))], .bytes),
    .faults("206 without Content-Range", [.contentRange(.missing)], .bytes),
    .faults("206 without a total", [.contentRange(.unknownTotal)], .bytes),
    .faults("206 with a Content-Range that says nothing", [.contentRange(.text("bytes of it"))], .bytes),
    .faults(
      "206 with a total that is too large", [.contentRange(.total((1 << 20) + 5000))], timeout: 60,
      .bytesOrErrors([ESTALE]), .opened),
    .faults("206 with a total that is too small", [.contentRange(.total(700_000))], .fewer(700_000), .never),
    // Where two wrong ones follow each other, in the order in which they come, that is another version.
    FaultCase(
      "206 with a wrong total every second time", timeout: 60, .bytesOrErrors([ESTALE]), .opened, mostRequests: 120
    ) { stage in
      stage.origin.decide { $0.indexOfPath % 2 == 0 ? [.contentRange(.total(7 << 20))] : [] }
    },
    .faults("206 as multipart/byteranges", [.multipart], .bytes),
  ]

  static let unsatisfiable: [FaultCase] = [
    .faults("an empty file, with 416", [], size: 0, .bytes, mostRequests: 2),
    .faults("an empty file, with 200", whole, size: 0, .bytes),
    .faults("an empty file without a length", whole + [.noContentLength], size: 0, .bytes),
    FaultCase("416 for every range", .bytes) { stage in
      stage.origin.decide { $0.header("Range") != nil ? [.rangeNotSatisfiable()] : [] }
    },
    .faults("416 for everything", [.rangeNotSatisfiable(total: 1 << 20)], timeout: 60, .errors([EIO]), .opened),
    .from(1, "416 in the middle", [.rangeNotSatisfiable(total: 1 << 20)], .bytes),
    .faults("416 at first", [.rangeNotSatisfiable(total: 5)], next: 1, .bytes),
    FaultCase("416 once, in the middle", .bytes) { stage in
      stage.origin.decide { $0.indexOfPath == 2 ? [.rangeNotSatisfiable(total: 100)] : [] }
    },
  ]

  static let framing: [FaultCase] = [
    .faults("206 without Content-Length", [.noContentLength], .bytes),
    .faults("200 without Content-Length", whole + [.noContentLength], .bytes),
    .faults("206 in chunks", [.chunked()], .bytes),
    .faults("200 in chunks", whole + [.chunked()], .bytes),
    .faults("200 in chunks with trailers", whole + [.chunked(trailers: true)], .bytes),
    .faults("206 in HTTP/1.0", [.http10], .bytes),
    .faults("200 in HTTP/1.0 without a length", whole + [.http10, .noContentLength], .bytes),
    .faults(
      "200 without a length, reset in the middle, always", whole + [.chunked(), .resetAfter(300_000)],
      .errors([ETIMEDOUT])),
    .faults("200 with a length, closed in the middle, always", whole + [.closeAfter(300_000)], .errors([ETIMEDOUT])),
    .faults("Content-Length is too large", [.contentLengthOff(by: 1000)], .errors([ETIMEDOUT]), .opened),
    .faults("Content-Length is too small", [.contentLengthOff(by: -1000)], .fewer((1 << 20) - 1000), .never),
    .faults("gzip that nobody asked for", [.gzip], timeout: 60, .errors([EIO]), .opened),
    FaultCase("gzip once, in the middle", .bytes) { stage in
      stage.origin.decide { $0.indexOfPath == 2 ? [.gzip] : [] }
    },
  ]

  static let validators: [FaultCase] = [
    resource("no validators") {
      $0.tag = .none
      $0.modified = nil
    },
    resource("a weak tag alone") {
      $0.tag = .weak
      $0.modified = nil
    },
    resource("Last-Modified alone") { $0.tag = .none },
    .faults(
      "a tag that flaps between two servers", [.flappingTag(["\"a\"", "\"b\""])], timeout: 60, .bytesOrErrors([ESTALE]),
      .opened),
    .faults("If-Range is ignored", [.ignoreIfRange], .bytes),
  ]

  private static func resource(
    _ name: String, _ change: @escaping @Sendable (inout OriginResource) -> Void
  ) -> FaultCase {
    FaultCase(name, .bytes) { $0.origin.change(FaultStage.path, change) }
  }
}
