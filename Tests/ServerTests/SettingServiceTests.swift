import Control
import TestSupport
import Testing

@testable import Server
@testable import Storing

/// Settings over the control socket of a running file system.
@Suite struct SettingServiceTests {
  /// The host is meant that URLs of the list have in the form in which they are requested.
  @Test(
    arguments: [
      ("https://Example.com:443", "https://example.com"), ("http://a.example:80", "http://a.example"),
      ("a.example:443", "https://a.example"), ("https://a.example:80", "https://a.example:80"),
      ("https://[::1]:443", "https://[::1]"), ("ftp://a.example", nil), ("https://:443", nil),
      ("known.example", "http://known.example"), ("known.example:80", "http://known.example"),
    ] as [(String, String?)])
  func aHostIsMeantAsURLsHaveIt(_ given: String, _ meant: String?) throws {
    try withTemporaryFolder { folder in
      let opened = try StoreFolder.open(folder.file("store"), mountpoint: "/nowhere", wait: 0)
      let catalog = try Catalog.open(path: opened.catalogPath, access: .readWrite)
      let known = HostNote(
        name: "http://known.example", lanes: 8, connectionRate: nil, rate: 1e7, roundTrip: 0.05, httpVersion: nil, at: 1
      )
      try catalog.changes.apply([.host(known)], durably: true)
      try withService(of: catalog, opened, try LibraryFolder(folder.file("library"))) { service in
        let refused: ControlFailure?
        do throws(ControlFailure) {
          _ = try service.set(["limit-rate": "1M"], host: given)
          refused = nil
        } catch { refused = error }
        #expect((refused?.message.contains("is no host") ?? false) == (meant == nil), "\(String(describing: refused))")
        let scopes = try catalog.notes.settings().map(\.scope)
        #expect(scopes == [meant].compactMap { $0 })
      }
    }
  }

  @Test func thereIsABoundOnHosts() throws {
    try withTemporaryFolder { folder in
      let opened = try StoreFolder.open(folder.file("store"), mountpoint: "/nowhere", wait: 0)
      let catalog = try Catalog.open(path: opened.catalogPath, access: .readWrite)
      let host = { (number: Int) in "https://\(number).example" }
      let most = SettingService.mostHosts
      try catalog.changes.apply(
        (1..<most).flatMap { number in
          ["limit-rate", "max-connections"].map { .setting(scope: host(number), name: $0, value: "7") }
        } + [.setting(scope: "", name: "limit-rate", value: "1M")], durably: true)
      try withService(of: catalog, opened, try LibraryFolder(folder.file("library"))) { service in
        _ = try service.set(["limit-rate": "1M"], host: host(most))
        let refused = #expect(throws: ControlFailure.self) {
          try service.set(["limit-rate": "1M"], host: host(most + 1))
        }
        #expect(refused?.message.contains("\(most) hosts") == true)
        // What is set may change, and go; the mount's own is no host's.
        _ = try service.set(["max-connections": "2"], host: host(most))
        _ = try service.set(["limit-rate": "2M"], host: nil)
        _ = try service.set(["limit-rate": "default"], host: host(most + 1))
        _ = try service.set(["limit-rate": "default", "max-connections": "default"], host: host(1))
        let all = try service.set(["limit-rate": "1M"], host: host(most + 1))
        #expect(all.count == 5 + 2 * most - 1 && all.count <= ControlLimits.settings)
      }
    }
  }
}
