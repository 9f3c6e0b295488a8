import Testing

@testable import Manifest

@Suite("Keys of resources")
struct KeyTests {
  private func keyText(_ url: String) throws -> String {
    var parser = URLParser()
    try parser.parse(Array(url.utf8).span)
    var builder = KeyBuilder()
    _ = builder.key(of: parser)
    return String(decoding: builder.text, as: UTF8.self)
  }

  @Test func bytes() throws {
    // printf 'id:abc' | sha256sum
    let key = ResourceKey(id: "abc")
    #expect(key == ResourceKey(high: 0xc8cd_7a44_7458_353f, low: 0xaae5_e088_9299_b803))
  }

  @Test func textsThatAreNoURL() {
    #expect(ResourceKey(url: "x") != ResourceKey(url: "y"))
    #expect(ResourceKey(url: "x") == ResourceKey(url: "x"))
  }

  @Test(arguments: [
    ("HTTP://u:p@EXAMPLE.com:80#f", "url:http://example.com/"), ("https://h/%7Ea%2fb%c3", "url:https://h/~a%2Fb%C3"),
    ("https://h/%41?%42=%43%26", "url:https://h/A?B=C%26"), ("https://h/a?", "url:https://h/a?"),
    ("https://h/a?b&&c=", "url:https://h/a?b&&c="), ("https://h:8443/a?z=1&a=2", "url:https://h:8443/a?z=1&a=2"),
  ])
  func normalized(_ url: String, _ text: String) throws { #expect(try keyText(url) == text) }

  /// Signed links, and what of them tells the resource.
  @Test(arguments: [
    (
      "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=A%2F1%2Fs3&X-Amz-Date=20240101T000000Z&X-Amz-Expires=60"
        + "&X-Amz-SignedHeaders=host&X-Amz-Security-Token=t&versionId=7&X-Amz-Signature=ab", "versionId=7"
    ),
    ("AWSAccessKeyId=A&Expires=1&Signature=b%3D", ""),
    ("response-content-type=x&AWSAccessKeyId=A&Expires=1&Signature=b", "response-content-type=x"),
    ("Expires=1700000000&Signature=ab~&Key-Pair-Id=K", ""), ("Policy=ab&Signature=cd&Key-Pair-Id=K&v=2", "v=2"),
    (
      "X-Goog-Algorithm=G&X-Goog-Credential=c&X-Goog-Date=d"
        + "&X-Goog-Expires=9&X-Goog-SignedHeaders=host&X-Goog-Signature=ff&generation=3",
      "generation=3"
    ),
    ("GoogleAccessId=a&Expires=1&Signature=s", ""),
    ("Expires=1700000000&KeyName=k&Signature=abcdefghijklmnopqrstuvwxyz=", ""),
    (
      "sv=2022-11-02&sr=b&st=x&se=2024-01-01T00%3A00%3A00Z&sp=r"
        + "&sig=abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG%3D&snapshot=1",
      "snapshot=1"
    ),
    ("OSSAccessKeyId=k&Expires=1&Signature=s&x-oss-process=image/resize,w_10", "x-oss-process=image/resize,w_10"),
    ("x-oss-credential=a&x-oss-date=d&x-oss-expires=1&x-oss-signature=f&x-oss-signature-version=OSS4", ""),
    ("q-sign-algorithm=sha1&q-ak=a&q-sign-time=1;2&q-key-time=1;2&q-header-list=&q-url-param-list=&q-signature=s", ""),
    ("hdnts=exp=1~acl=/*~hmac=ab", ""), ("a&&hdnts=exp=1~acl=/*~hmac=ab&&b=1&", "a&&&b=1&"),
    ("ex=6641d2a0&is=66408120&hm=" + String(repeating: "0a", count: 32) + "&width=9", "width=9"),
    ("id=5&expires=1700000000&signature=0123456789abcdef0123456789abcdef", "id=5"),
    ("token=abcdefghijklmnopqrstuv&expires=1700000000", ""), ("md5=abcdefghijklmnopqrstuv&expires=1700000000", ""),
  ])
  func signatures(_ query: String, _ kept: String) throws {
    #expect(try keyText("https://h/clip.mp4?" + query) == "url:https://h/clip.mp4" + (kept.isEmpty ? "" : "?" + kept))
  }

  /// What looks a little like a signature but may tell resources apart: it stays.
  @Test(arguments: [
    "https://h/get?token=abcdefghijklmnopqrstuv&expires=1700000000",  // the path names no file
    "https://h/clip.mp4?token=abc&expires=1700000000", "https://h/clip.mp4?token=abcdefghijklmnopqrstuv",
    "https://h/clip.mp4?token=abcdefghijklmnopqrstuv&expires=soon", "https://h/clip.mp4?expires=1700000000",
    "https://h/clip.mp4?md5=d41d8cd98f00b204e9800998ecf8427e&expires=1700000000",  // a content hash
    "https://h/clip.mp4?sig=abcdefghijklmnopqrstuvwxyz", "https://h/clip.mp4?sv=2&sig=abcdefghijklmnopqrstuvwxyz",
    "https://h/clip.mp4?Signature=abc&Expires=1", "https://h/clip.mp4?X-Amz-Date=1&X-Amz-Expires=2",
    "https://h/clip.mp4?Policy=a&Key-Pair-Id=b", "https://h/clip.mp4?ex=1&is=2&hm=3",
    "https://h/a?Authorization=abcdefghijklmnopqrstuvwxyz",
    "https://h/clip.mp4?hdnts=1", "https://h/clip.mp4?a&&hdnts=1&&b=1&", "https://h/clip.mp4?&",
    "https://h/clip.mp4?key=1&auth=2&t=3&e=4&st=5",
    // Given twice, so one of them may mean something.
    "https://h/clip.mp4?signature=aaaaaaaaaaaaaaaaaaaaaaaa&signature=bbbbbbbbbbbbbbbbbbbbbbbb&expires=1700000000",
  ])
  func whatStays(_ url: String) throws { #expect(try keyText(url) == "url:" + url) }

  @Test func signedAnewIsTheSame() {
    let first = "https://b.s3.amazonaws.com/a.mp4?X-Amz-Credential=a&X-Amz-Date=1&X-Amz-Signature=2"
    let second = "https://b.s3.amazonaws.com/a.mp4?X-Amz-Date=3&x-amz-signature=4&X%2DAmz%2DCredential=b"
    #expect(ResourceKey(url: first) == ResourceKey(url: second))
    #expect(ResourceKey(url: first) == ResourceKey(url: "https://b.s3.amazonaws.com/a.mp4"))
    #expect(ResourceKey(url: first) != ResourceKey(url: "http://b.s3.amazonaws.com/a.mp4"))
  }
}
