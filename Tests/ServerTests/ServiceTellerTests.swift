import Testing

@testable import Server

/// What people see of a service (systemctl status).
@Suite struct ServiceTellerTests {
  @Test func theLine() {
    #expect(
      ServiceTeller.line(files: 1, complete: 0, stored: 0, rate: 0, problem: nil) == "1 file, 0 complete, 0 B stored")
    #expect(
      ServiceTeller.line(files: 12, complete: 3, stored: 64_172_851, rate: 1_593_835.5, problem: "the list is gone")
        == "12 files, 3 complete, 61.2 MiB stored, 1.52 MiB/s. the list is gone")
    #expect(
      ServiceTeller.line(files: 1, complete: 0, stored: 0, rate: 0x1p64, problem: nil)
        == "1 file, 0 complete, 0 B stored")
  }
}
