import Base
import Testing

@testable import Fetching

@Suite("Header field values")
struct FieldValueTests {
  @Test(
    "Content-Range",
    arguments: [
      ("bytes 0-0/1", ContentRange.satisfied(ByteRange(0, 1), total: 1)),
      ("bytes 5-9/10", .satisfied(ByteRange(5, 10), total: 10)),
      ("BYTES 5-9/*", .satisfied(ByteRange(5, 10), total: nil)),
      ("bytes  5 - 9 / 10", .satisfied(ByteRange(5, 10), total: 10)),
      ("bytes */10", .unsatisfied(total: 10)),
      ("bytes */0", .unsatisfied(total: 0)),
      ("bytes 5-10/10", nil),  // ends behind its total
      ("bytes 9-5/10", nil),
      ("bytes 5-9", nil),
      ("bytes 5-9/", nil),
      ("bytes */*", nil),
      ("bytes -5-9/10", nil),
      ("bytes +5-9/10", nil),
      ("bytes 5-9/10/11", nil),
      ("bytes=5-9/10", nil),
      ("items 5-9/10", nil),
      ("bytes 5-99999999999999999999/*", nil),
      ("bytes 5-9223372036854775807/*", nil),  // its end would not fit
      ("bytes ٥-٩/١٠", nil),  // digits, but not ASCII
      ("", nil),
    ] as [(String, ContentRange?)])
  func contentRange(text: String, expected: ContentRange?) { #expect(ContentRange(text) == expected) }

  @Test(
    "ETag and Last-Modified",
    arguments: [
      ("\"a\"", nil, Validators(etag: "\"a\"")),
      ("W/\"a\"", nil, Validators(etag: "\"a\"", etagIsWeak: true)),
      ("w/\"a\"", nil, Validators(etag: "\"a\"", etagIsWeak: true)),
      ("naked", nil, Validators(etag: "naked", etagIsWeak: true)),
      ("\"", nil, Validators(etag: "\"", etagIsWeak: true)),
      ("\"\"", nil, Validators(etag: "\"\"")),
      ("", nil, Validators()),
      ("W/", nil, Validators()),
      (nil, "Thu, 01 Jan 1970 00:01:00 GMT", Validators(lastModified: 60)),
      (nil, "Sunday, 06-Nov-94 08:49:37 GMT", Validators(lastModified: 784_111_777)),
      (nil, "Sun Nov  6 08:49:37 1994", Validators(lastModified: 784_111_777)),
      (nil, "yesterday", Validators()),
    ] as [(String?, String?, Validators)])
  func parsesValidators(etag: String?, lastModified: String?, expected: Validators) {
    #expect(validators(etag: etag, lastModified: lastModified) == expected)
  }

  @Test("A date's year has four digits at most, so that sums of times do not overflow")
  func boundsDates() {
    #expect(httpDate("Fri, 31 Dec 9999 23:59:59 GMT") == 253_402_300_799)
    for year in [10_000, 2_147_483_647] { #expect(httpDate("Sat, 01 Jan \(year) 00:00:00 GMT") == nil, "\(year)") }
  }

  @Test(
    "Retry-After",
    arguments: [
      ("7", 7), ("0", 0), ("999999999", 86_400), ("99999999999999999999999", 86_400),
      ("Thu, 01 Jan 1970 00:02:00 GMT", 20), ("Thu, 01 Jan 1970 00:00:00 GMT", 0), ("-3", nil), ("soon", nil),
      ("", nil),
    ] as [(String, Double?)])
  func parsesRetryAfter(text: String, expected: Double?) { #expect(retryAfter(text, now: 100) == expected) }

  @Test(
    "Content-Type",
    arguments: [
      ("video/mp4", "video/mp4"), ("Video/MP4; codecs=\"avc1\"", "video/mp4"), (" audio/flac ", "audio/flac"),
      ("", nil),
      (";x=y", nil),
    ] as [(String, String?)])
  func parsesMediaType(text: String, expected: String?) { #expect(mediaType(text) == expected) }

  @Test(
    "Content-Disposition",
    arguments: [
      ("attachment; filename=\"a b.mp4\"", "a b.mp4"),
      ("attachment; filename=a.mp4", "a.mp4"),
      ("attachment;filename=a.mp4;size=3", "a.mp4"),
      ("ATTACHMENT; FileName=\"x;y\\\"z\\\\.mkv\"", "x;y\"z\\.mkv"),
      ("attachment; filename=\"plain.mp4\"; filename*=UTF-8''na%C3%AFve%20%E2%82%AC.mp4", "naïve €.mp4"),
      ("attachment; filename*=utf-8'en'b.mp4; filename=\"plain.mp4\"", "b.mp4"),
      ("attachment; filename*=ISO-8859-1''%E9.mp3", "é.mp3"),
      ("attachment; filename*=UTF-8''%FF.mp3; filename=fallback.mp3", "fallback.mp3"),
      ("attachment; filename*=UTF-8''%4; filename=fallback.mp3", "fallback.mp3"),
      ("attachment; filename*=koi8-r''a; filename=fallback.mp3", "fallback.mp3"),
      ("attachment; filename*=nonsense", nil),
      ("filename=\"no-type.ogg\"", "no-type.ogg"),
      ("attachment; filename=\"unended", "unended"),
      ("attachment; filename=\"\"", nil),
      ("attachment; filename", nil),
      ("attachment", nil),
      (";;;", nil),
      ("inline; x=\"filename=evil\"", nil),
      ("attachment; filename=\"../../etc/passwd\"", "../../etc/passwd"),
      ("", nil),
    ] as [(String, String?)])
  func disposition(text: String, expected: String?) { #expect(suggestedName(disposition: text) == expected) }
}
