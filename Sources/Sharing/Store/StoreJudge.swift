import Fetching

/// What an answer of the store means. Pure: its status, its reason and what was asked go in, an outcome comes out.
struct StoreJudge {
  var location: StoreLocation
  var credentials: StoreCredentials

  /// The codes for which other keys may be there by now.
  static let codesOfKeys: Set = [
    "ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId", "SignatureDoesNotMatch",
  ]

  /// The outcome of an answer without success; nil for success.
  func failure(_ status: Int, _ answer: ObjectAnswer, _ body: [UInt8], of action: StoreRequest.Action) -> StoreOutcome?
  {
    if (200..<300).contains(status) { return nil }
    let error = StoreXML.error(body)
    let said = Self.said(status, error)
    switch (status, error.code) {
    case (_, "SlowDown"?), (_, "ServiceUnavailable"?), (429, _), (503, _):
      return .busy(retryAfter: answer.retryAfter, reason: "\(location.description): the store is busy\(said)")
    case (507, _), (_, "QuotaExceeded"?), (_, "XMinioStorageFull"?), (_, "XMinioAdminBucketQuotaExceeded"?),
      (_, "InsufficientStorage"?):
      return .full(reason: "\(location.description): the store has no room\(said): give it more, or remove what is old")
    case (404, "NoSuchBucket"?):
      return refused("there is no bucket “\(location.bucket)”: create it", said)
    case (404, _): if case .list = action { return refused("there is nothing to list", said) } else { return .absent }
    // 409: another write of the key is under way.
    case (412, _), (409, _): return .conflict
    case (301, _), (302, _), (307, _), (308, _), (_, "AuthorizationHeaderMalformed"?):
      let region = answer.fields["x-amz-bucket-region"] ?? error.region
      let advice = region.map { "the bucket is in the region \($0.prefix(40)): name that region" }
      return refused(advice ?? "the bucket is not at this endpoint: check endpoint and region", said)
    // The object ends before the part that was asked for: it is shorter than what was stored.
    case (416, _): return .rotten(etag: nil, reason: "\(location.description): the object is too short\(said)")
    case (501, _): return refused("the store does not know such a request", said)
    case (_, "RequestTimeout"?), (408, _), (500..., _): return broken("the store failed", said)
    case (_, "RequestTimeTooSkewed"?):
      return refused(
        "the clocks of this machine and the store differ, and the store's Date does not help: set them", said)
    case (_, let code?) where Self.codesOfKeys.contains(code):
      return refused("the keys of \(credentials.origin) do not count: check them, or renew them", said)
    case (401, _), (403, _):
      return refused("the key \(credentials.accessKey) may not do this: check the rights of the bucket", said)
    default: return refused("the store rejects the request", said)
    }
  }

  func refused(_ what: String, _ said: String = "") -> StoreOutcome {
    .refused(reason: "\(location.description): \(what)\(said)")
  }

  func broken(_ what: String, _ said: String = "") -> StoreOutcome {
    .broken(reason: "\(location.description): \(what)\(said)")
  }

  /// What came of a transfer without a whole answer.
  func failure(_ failure: TransferFailure) -> StoreOutcome {
    // Its message names the URL, whose path is the bucket's and the key's.
    failure.kind == .permanent ? .refused(reason: failure.message) : .broken(reason: failure.message)
  }

  /// The status, and the first words of the store's reason: ` (HTTP 403, AccessDenied: Access Denied.)`.
  private static func said(_ status: Int, _ error: StoreXML) -> String {
    let words = [error.code?.prefix(40), error.message?.prefix(160)].compactMap { $0.map { Swift.String($0) } }
    return " (HTTP \(status)" + (words.isEmpty ? "" : ", \(words.joined(separator: ": "))") + ")"
  }
}
