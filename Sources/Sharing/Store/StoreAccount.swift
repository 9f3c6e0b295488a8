import Base

/// What the environment and the files of the AWS command line say of a store: keys, and where it is.
package struct StoreAccount: Sendable, Equatable {
  package var credentials: StoreCredentials
  package var region: String?
  package var endpoint: String?
  package var style: StoreLocation.Style?

  /// The environment variables that count.
  package static let variables = [
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE",
    "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL", "HOME",
  ]

  /// The files that ``find(_:read:)`` reads, whether they exist or not.
  package static func files(_ environment: [String: String]) -> [String] {
    let places = Places(environment)
    return [places.credentials, places.configuration].compactMap { $0 }
  }

  /// Looks as other programs do: the keys in the environment first, then those of the profile, in the file of
  /// credentials and in the configuration. What the environment says of region and endpoint goes before the profile's.
  ///
  /// - Parameter read: gives the text of a file; nil when there is none.
  package static func find(
    _ environment: [String: String], read: (String) throws(PlainFileError) -> String? = readProfiles
  ) throws(StoreSetupError) -> StoreAccount {
    let places = Places(environment)
    let keys = try file(places.credentials, isNamed: places.namesCredentials, isConfiguration: false, read)
    let settings = try file(places.configuration, isNamed: places.namesConfiguration, isConfiguration: true, read)
    let name = places.profile ?? "default"
    let (ownKeys, own) = (keys?.sections[name], settings?.sections[name])
    if places.profile != nil, ownKeys == nil, own == nil {
      throw StoreSetupError(
        description: "the profile “\(name)” is in no file of credentials: check AWS_PROFILE, and the sections of "
          + files(environment).joined(separator: " and "))
    }
    func setting(_ variables: [String], _ key: String) -> String? {
      variables.lazy.compactMap { filled(environment[$0]) }.first ?? filled(own?[key])
    }
    var credentials = try fromEnvironment(environment)
    if credentials == nil { credentials = try fromProfile(ownKeys, name, places.credentials) }
    if credentials == nil { credentials = try fromProfile(own, name, places.configuration) }
    guard let credentials else { throw none(name, own, environment) }
    let style: StoreLocation.Style? =
      switch own?["s3.addressing_style"] {
      case "path": .path
      case "virtual": .virtualHost
      default: nil
      }
    return StoreAccount(
      credentials: credentials, region: setting(["AWS_REGION", "AWS_DEFAULT_REGION"], "region"),
      endpoint: setting(["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"], "endpoint_url"), style: style)
  }

  /// The text of a file of profiles, which has a few KiB; nil when there is none.
  package static func readProfiles(_ path: String) throws(PlainFileError) -> String? {
    do throws(PlainFileError) {
      let file = try FileDescriptor.openPlain(path)
      do throws(Errno) {
        var bytes = [UInt8](repeating: 0, count: Int(min(try file.status().st_size, 1 << 20)))
        var failure: Errno?
        let count = bytes.withUnsafeMutableBytes { buffer in
          do throws(Errno) { return try file.readFully(at: 0, into: buffer) } catch {
            failure = error
            return 0
          }
        }
        if let failure { throw failure }
        return String(decoding: bytes[..<count], as: UTF8.self)
      } catch {
        throw .system(error)
      }
    } catch {
      if case .system(let number) = error, number == .notFound || number == .notDirectory { return nil }
      throw error
    }
  }

  /// Where the files are.
  private struct Places {
    var profile: String?
    var credentials: String?
    var configuration: String?
    var namesCredentials: Bool
    var namesConfiguration: Bool

    init(_ environment: [String: String]) {
      profile = filled(environment["AWS_PROFILE"]) ?? filled(environment["AWS_DEFAULT_PROFILE"])
      let home = filled(environment["HOME"])
      let keys = filled(environment["AWS_SHARED_CREDENTIALS_FILE"])
      let settings = filled(environment["AWS_CONFIG_FILE"])
      (namesCredentials, namesConfiguration) = (keys != nil, settings != nil)
      func inHome(_ path: String) -> String {
        path.hasPrefix("~/") ? home.map { $0 + path.dropFirst() } ?? path : path
      }
      credentials = keys.map(inHome) ?? home.map { "\($0)/.aws/credentials" }
      configuration = settings.map(inHome) ?? home.map { "\($0)/.aws/config" }
    }
  }

  private static func file(
    _ path: String?, isNamed: Bool, isConfiguration: Bool, _ read: (String) throws(PlainFileError) -> String?
  ) throws(StoreSetupError) -> ProfileFile? {
    guard let path else { return nil }
    let text: String?
    do throws(PlainFileError) { text = try read(path) } catch {
      throw StoreSetupError(description: "cannot read \(path), which has the keys of object stores: \(error)")
    }
    if text == nil, isNamed {
      let variable = isConfiguration ? "AWS_CONFIG_FILE" : "AWS_SHARED_CREDENTIALS_FILE"
      throw StoreSetupError(description: "\(variable) names \(path), and there is no such file")
    }
    return text.map { ProfileFile($0, isConfiguration: isConfiguration) }
  }

  private static func fromEnvironment(_ environment: [String: String]) throws(StoreSetupError) -> StoreCredentials? {
    let (key, secret) = (filled(environment["AWS_ACCESS_KEY_ID"]), filled(environment["AWS_SECRET_ACCESS_KEY"]))
    guard key != nil || secret != nil else { return nil }
    guard let key, let secret else {
      throw StoreSetupError(
        description: "the environment has \(key == nil ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID") without "
          + "\(key == nil ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY"): set both, or neither")
    }
    return try checked(key, secret, filled(environment["AWS_SESSION_TOKEN"]), "the environment")
  }

  private static func fromProfile(
    _ profile: [String: String]?, _ name: String, _ path: String?
  ) throws(StoreSetupError) -> StoreCredentials? {
    let (key, secret) = (filled(profile?["aws_access_key_id"]), filled(profile?["aws_secret_access_key"]))
    guard key != nil || secret != nil else { return nil }
    let origin = "the profile “\(name)” of \(path ?? "")"
    guard let key, let secret else {
      throw StoreSetupError(
        description: "\(origin) has one of aws_access_key_id and aws_secret_access_key without the other: write both")
    }
    return try checked(key, secret, filled(profile?["aws_session_token"]), origin)
  }

  /// Keys that could be sent in a field, and in the one that names them.
  private static func checked(
    _ key: String, _ secret: String, _ token: String?, _ origin: String
  ) throws(StoreSetupError) -> StoreCredentials {
    let isSendable = { (text: String) in text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F } }
    guard isSendable(key), !key.contains("/"), !key.contains(","), isSendable(secret), token.map(isSendable) ?? true
    else {
      throw StoreSetupError(
        description: "a key of \(origin) has a character that no key of an object store has: copy it again")
    }
    return StoreCredentials(accessKey: key, secretKey: secret, sessionToken: token, origin: origin)
  }

  private static func none(
    _ name: String, _ profile: [String: String]?, _ environment: [String: String]
  ) -> StoreSetupError {
    let indirect = ["credential_process", "role_arn", "sso_session", "sso_start_url", "web_identity_token_file"]
    if let way = indirect.first(where: { profile?[$0] != nil }) {
      return StoreSetupError(
        description: "the profile “\(name)” gets its keys by \(way), which mediafs does not do: put keys into the "
          + "environment (`aws configure export-credentials --format env` prints them), or into the profile")
    }
    let places = files(environment).first.map { ", or write them to \($0) as the profile “\(name)”" } ?? ""
    return StoreSetupError(
      description: "there are no keys for the object store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY\(places)")
  }
}

/// The text, if there is any.
private func filled(_ text: String?) -> String? { text.flatMap { $0.isEmpty ? nil : $0 } }

extension StoreSetup {
  /// The store that a user names, with what the environment and the profile say of it: what the user says goes first.
  ///
  /// - Parameters:
  ///   - share: `s3://bucket/prefix`.
  ///   - endpoint: the store's URL, nil for the environment's, the profile's, or else AWS.
  ///   - region: nil for the environment's or the profile's.
  package init(
    share: String, endpoint: String? = nil, region: String? = nil, environment: [String: String]
  ) throws(StoreSetupError) {
    let account = try StoreAccount.find(environment)
    let location = try StoreLocation(
      share: share, endpoint: endpoint ?? account.endpoint, region: region ?? account.region, style: account.style)
    self.init(location, account.credentials)
    renew = {
      do throws(StoreSetupError) { return try StoreAccount.find(environment).credentials } catch {
        Log.warning("\(error)")
        return nil
      }
    }
  }
}
