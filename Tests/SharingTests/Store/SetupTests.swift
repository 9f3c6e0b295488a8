import Base
import TestSupport
import Testing

@testable import Sharing

/// Where a store is, and its keys.
@Suite("The store's setup") struct SetupTests {
  private static func location(
    _ share: String, _ endpoint: String? = nil, _ region: String? = nil, _ style: StoreLocation.Style? = nil
  ) throws -> StoreLocation { try StoreLocation(share: share, endpoint: endpoint, region: region, style: style) }

  private static func url(_ location: StoreLocation, _ key: String) -> String {
    location.url(path: location.path(of: key), query: "")
  }

  @Test func whereObjectsAre() throws {
    let aws = try Self.location("s3://films/a b/", nil, "eu-west-1")
    #expect(Self.url(aws, "mfs1/x") == "https://films.s3.eu-west-1.amazonaws.com/a%20b/mfs1/x")
    #expect(aws.description == "s3://films/a b" && aws.isSecure && aws.style == .virtualHost)
    #expect(aws.key(of: "a b/mfs1/x") == "mfs1/x" && aws.key(of: "a c/mfs1/x") == nil)
    let dotted = try Self.location("s3://my.films")
    #expect(Self.url(dotted, "k") == "https://s3.us-east-1.amazonaws.com/my.films/k")
    #expect(Self.url(try Self.location("s3://films", nil, "cn-north-1"), "k").contains(".cn-north-1.amazonaws.com.cn/"))
    let own = try Self.location("s3://films/p//q", "HTTP://Store.Test:9000/s3/")
    #expect(Self.url(own, "k+1") == "http://store.test:9000/s3/films/p/q/k%2B1" && own.host == "store.test:9000")
    let virtual = try Self.location("s3://films", "https://store.test:443", nil, .virtualHost)
    #expect(Self.url(virtual, "k") == "https://films.store.test/k" && virtual.host == "films.store.test")
    #expect(Self.url(try Self.location("s3://films", "http://[::1]:8333"), "k") == "http://[::1]:8333/films/k")
    #expect(virtual.path(of: nil) == "/" && own.path(of: nil) == "/s3/films/")
  }

  @Test(
    arguments: [
      ("films", nil, nil), ("s3://", nil, nil), ("s3://ab", nil, nil), ("s3://a/b", nil, nil),
      ("s3://films/../x", nil, nil), ("s3://films/a/./b", nil, nil), ("s3://fi lms", nil, nil),
      ("s3://films", "store.test", nil), ("s3://films", "ftp://store.test", nil), ("s3://films", "https://", nil),
      ("s3://films", "https://store.test:0", nil), ("s3://films", "https://store.test:99999", nil),
      ("s3://films", "https://store.test/?x=1", nil), ("s3://films", "https://sto_re.test/%2F", nil),
      ("s3://films", "https://store.test/../s3", nil), ("s3://films", nil, "eu west"), ("s3://films", nil, ""),
    ] as [(String, String?, String?)])
  func whatIsNoPlaceIsRefused(share: String, endpoint: String?, region: String?) {
    #expect(throws: StoreSetupError.self) { try Self.location(share, endpoint, region) }
  }

  @Test func aBucketThatDoesNotFitIntoAHost() {
    for (share, endpoint) in [("s3://films", "http://127.0.0.1:8333"), ("s3://my.films", "https://store.test")] {
      #expect(throws: StoreSetupError.self) { try Self.location(share, endpoint, nil, .virtualHost) }
    }
    do {
      _ = try Self.location("s3://films", "https://AKIA:geheim@store.test")
      Issue.record("a user in the endpoint was taken")
    } catch {
      #expect(!"\(error)".contains("geheim"))
    }
  }

  private static func find(
    _ environment: [String: String], _ files: [String: String] = [:]
  ) throws(StoreSetupError) -> StoreAccount {
    try StoreAccount.find(environment) { (path: String) throws(PlainFileError) -> String? in files[path] }
  }

  private static let files = [
    "/h/.aws/credentials": """
    # keys
    [default]
    aws_access_key_id = AKDEFAULT
    aws_secret_access_key=abc/+=   ; a remark
    [work]
    aws_access_key_id=AKWORK
    aws_secret_access_key = w#rk
    aws_session_token = token==
    [half]
    aws_access_key_id=AKHALF
    """,
    "/h/.aws/config": """
    [default]
    region = eu-central-1
    [profile work]
    region = eu-west-3
    endpoint_url = https://store.test
    s3 =
      addressing_style = virtual
      max_concurrent_requests = 3
    output = json
    [work]
    region = nowhere
    [profile inside]
    aws_access_key_id = AKINSIDE
    aws_secret_access_key = inside
    [profile asked]
    credential_process = /bin/true
    """,
  ]

  @Test func keysOfTheEnvironmentGoFirst() throws {
    let keys = ["AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "S", "AWS_SESSION_TOKEN": "T", "HOME": "/h"]
    let account = try Self.find(keys, Self.files)
    #expect(
      account.credentials
        == StoreCredentials(accessKey: "AK", secretKey: "S", sessionToken: "T", origin: "the environment"))
    #expect(account.region == "eu-central-1" && account.endpoint == nil)
    let more = ["AWS_REGION": "r1", "AWS_DEFAULT_REGION": "r2", "AWS_ENDPOINT_URL": "e1", "AWS_ENDPOINT_URL_S3": "e2"]
    let other = try Self.find(keys.merging(more) { $1 }, [:])
    #expect(other.region == "r1" && other.endpoint == "e2")
  }

  @Test func keysOfAProfile() throws {
    let plain = try Self.find(["HOME": "/h"], Self.files)
    #expect(plain.credentials.accessKey == "AKDEFAULT" && plain.credentials.secretKey == "abc/+=")
    #expect(!"\(plain.credentials) \(plain)".contains("abc/"), "a description shows the secret")
    let work = try Self.find(["HOME": "/h", "AWS_PROFILE": "work"], Self.files)
    #expect(work.credentials.secretKey == "w#rk" && work.credentials.sessionToken == "token==")
    #expect(work.region == "eu-west-3" && work.endpoint == "https://store.test" && work.style == .virtualHost)
    let inside = try Self.find(["HOME": "/h", "AWS_DEFAULT_PROFILE": "inside"], Self.files)
    #expect(inside.credentials.accessKey == "AKINSIDE" && inside.style == nil)
    let elsewhere = ["/k": "[default]\r\naws_access_key_id=AK2\r\naws_secret_access_key=S2\r\n"]
    let named = try Self.find(["AWS_SHARED_CREDENTIALS_FILE": "/k"], elsewhere)
    #expect(named.credentials.accessKey == "AK2" && named.credentials.secretKey == "S2")
    #expect(StoreAccount.files(["HOME": "/h", "AWS_CONFIG_FILE": "~/c"]) == ["/h/.aws/credentials", "/h/c"])
  }

  @Test(arguments: [
    (["HOME": "/h", "AWS_PROFILE": "none"], "AWS_PROFILE"), (["HOME": "/h", "AWS_PROFILE": "half"], "write both"),
    (["HOME": "/h", "AWS_PROFILE": "asked"], "credential_process"), (["HOME": "/other"], "AWS_ACCESS_KEY_ID"),
    ([:], "AWS_ACCESS_KEY_ID"), (["AWS_ACCESS_KEY_ID": "AK"], "AWS_SECRET_ACCESS_KEY"),
    (["AWS_ACCESS_KEY_ID": "AK\n", "AWS_SECRET_ACCESS_KEY": "S"], "copy it again"),
    (["HOME": "/h", "AWS_SHARED_CREDENTIALS_FILE": "/none"], "there is no such file"),
  ])
  func whatIsMissingIsSaid(environment: [String: String], words: String) {
    do {
      _ = try Self.find(environment, Self.files)
      Issue.record("keys were found")
    } catch {
      #expect("\(error)".contains(words), "\(error)")
    }
  }

  @Test("What the user says of the store goes before what the environment says, and that before the profile")
  func theWholeSetup() throws {
    try withTemporaryFolder { folder in
      try folder.write("[default]\naws_access_key_id=AK\naws_secret_access_key=S1\n", to: ".aws/credentials")
      try folder.write("[default]\nregion=r-profile\nendpoint_url=http://profile.test\n", to: ".aws/config")
      let home = ["HOME": folder.path]
      let own = try StoreSetup(share: "s3://films/p", environment: home)
      #expect(own.location == (try Self.location("s3://films/p", "http://profile.test", "r-profile")))
      let said = try StoreSetup(
        share: "s3://films/p", endpoint: "http://said.test", environment: home.merging(["AWS_REGION": "r-env"]) { $1 })
      #expect(said.location == (try Self.location("s3://films/p", "http://said.test", "r-env")))
      // New keys in the file are found.
      #expect(own.renew()?.secretKey == "S1")
      try folder.write("[default]\naws_access_key_id=AK\naws_secret_access_key=S2\n", to: ".aws/credentials")
      #expect(own.renew()?.secretKey == "S2")
      try folder.write("", to: ".aws/credentials")
      #expect(own.renew() == nil)
    }
  }

  @Test func filesThatCannotBeRead() throws {
    #expect(try StoreAccount.readProfiles("/nowhere/at/all") == nil)
    #expect(throws: PlainFileError.self) { try StoreAccount.readProfiles("/dev/null") }
    #expect(throws: StoreSetupError.self) {
      try StoreAccount.find(["HOME": "/h"]) { (_: String) throws(PlainFileError) -> String? in
        throw .system(.accessDenied)
      }
    }
  }
}
