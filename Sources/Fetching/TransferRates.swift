/// The most bytes a second. The client paces its requests for parts to stay within it; the loop limits whole bodies.
package struct TransferRates: Sendable, Equatable {
  /// Of all transfers together; nil for no limit.
  package var all: Int64?
  /// Of all transfers from one host together, by ``host(of:)``.
  package var hosts: [String: Int64] = [:]

  /// No limit, unless values are given.
  package init(all: Int64? = nil, hosts: [String: Int64] = [:]) {
    self.all = all
    self.hosts = hosts
  }

  /// The most for the transfers from the host of `url`; nil for no limit.
  package func limit(of url: String) -> Int64? {
    let own = hosts.isEmpty ? nil : hosts[Self.host(of: url)]
    guard let all else { return own }
    return min(all, own ?? all)
  }

  /// The host of a URL: `scheme://host`, with `:port` as the URL has it, in lower case and without a user. By
  /// bytes, because the planner asks often.
  package static func host(of url: String) -> String {
    let bytes = url.utf8
    guard let colon = bytes.firstIndex(of: UInt8(ascii: ":")), bytes[colon...].starts(with: "://".utf8) else {
      return url
    }
    let scheme = bytes[..<bytes.index(colon, offsetBy: 3)]
    let rest = bytes[scheme.endIndex...]
    let end = rest.firstIndex { $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: "?") || $0 == UInt8(ascii: "#") }
    let authority = rest[..<(end ?? rest.endIndex)]
    let host = authority.lastIndex(of: UInt8(ascii: "@")).map { authority[authority.index(after: $0)...] } ?? authority
    return (String(Substring(scheme)) + Substring(host)).lowercased()
  }
}
