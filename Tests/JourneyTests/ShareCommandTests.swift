import TestSupport
import Testing

/// `mediafs share`, as a user runs it.
@Suite("The share command") struct ShareCommandTests {
  private static let secret = "the fleet's secret text"

  private static func run(_ words: [String], key: String? = secret) throws -> CommandResult {
    try Command.run(
      [Programs.path("mediafs"), "share"] + words,
      environment: [
        "AWS_ACCESS_KEY_ID": StoreKeys.key, "AWS_SECRET_ACCESS_KEY": StoreKeys.secret, "MEDIAFS_FLEET_KEY": key,
      ])
  }

  /// What a mount would write there, with the mark of the key as openssl computes it.
  private static func format() throws -> [UInt8] {
    let digest = try Command.succeed([
      "bash", "-c", "printf 'mediafs key 1' | openssl dgst -sha256 -hmac \"$1\" | sed 's/.*= //'", "bash", secret,
    ])
    return Array("mediafs fleet 1\nblock=65536\nsegment=16\nkey=\(digest.prefix(16))\n".utf8)
  }

  @Test func statCheckAndCollectAnswer() throws {
    try withFakeStore { store in
      let place = ["s3://\(StoreKeys.bucket)/a/b", "--share-endpoint", store.endpoint]
      let none = try Self.run(["stat"] + place)
      #expect(none.status == 1 && none.errors.contains("has no fleet"), "\(none)")
      store.setObject("\(StoreKeys.bucket)/a/b/mfs1/format", try Self.format())
      let stat = try Self.run(["stat"] + place)
      #expect(stat.status == 0 && stat.output.contains("conditions of writes: kept\n"), "\(stat)")
      let json = try Self.run(["stat", "--json"] + place)
      #expect(json.status == 0 && json.output.contains("\"keepsConditions\":true"), "\(json)")
      let sound = try Self.run(["check"] + place)
      #expect(sound.status == 0 && sound.output.hasSuffix("no problems\n"), "\(sound)")
      store.setObject("\(StoreKeys.bucket)/a/b/mfs1/other", [1])
      let check = try Self.run(["check"] + place)
      #expect(
        check.status == 1 && check.output.contains("mfs1/other: no mediafs of this version wrote it\n"), "\(check)")
      let collect = try Self.run(["collect", "--dry-run", "--days", "7"] + place)
      #expect(collect.status == 0 && collect.output.contains("would remove 0 generations"), "\(collect)")
      let other = try Self.run(["collect"] + place, key: "the secret of another fleet")
      #expect(other.status == 1 && other.errors.contains("another fleet key"), "\(other)")
      for result in [stat, json, check, collect, other] {
        for secret in [Self.secret, StoreKeys.secret] { #expect(!(result.output + result.errors).contains(secret)) }
      }
      #expect(store.signatureFaults.isEmpty)
    }
  }

  @Test(arguments: [
    [], ["stat"], ["frob", "s3://bucket/x"], ["stat", "s3://bucket/x", "s3://bucket/y"],
    ["stat", "--days", "3", "s3://bucket/x"], ["check", "--json", "s3://bucket/x"],
    ["collect", "--days", "0", "s3://bucket/x"], ["collect", "--days", "x", "s3://bucket/x"],
  ])
  func wrongUsageDoesNothing(_ words: [String]) throws {
    let result = try Self.run(words)
    #expect(result.status == 2 && result.output.isEmpty && result.errors.contains("share"), "\(result)")
  }
}
