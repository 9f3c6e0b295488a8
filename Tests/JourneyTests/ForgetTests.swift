import Base
import Glibc
import TestSupport
import Testing

/// Mounts that are over.
@Suite struct ForgetTests {
  @Test func aMountThatIsOver() throws {
    try SystemRecords.unused {
      try withJourney { journey in
        try journey.mount("http://127.0.0.1:1/a.bin\n")
        let mounted = try journey.mediafs("forget", journey.mountpoint)
        #expect(mounted.status == 1 && mounted.errors.contains("unmount it first"), "\(mounted)")
        try journey.unmount()
        #expect(try journey.mediafs("status").output.contains(journey.mountpoint))
        try journey.succeed([try Programs.path("mediafs"), "forget", journey.mountpoint])
        #expect(try !journey.mediafs("status").output.contains(journey.mountpoint))
        #expect(try journey.mediafs("forget", journey.mountpoint).status == 1)
        // The store stays, and the next mount finds it.
        try journey.mount()
        try journey.unmount()
        #expect(try journey.mediafs("status").output.contains(journey.mountpoint))
        try journey.succeed(["rm", "-r", journey.store])
        #expect(try journey.mediafs("status").errors.contains("catalog"), "the mountpoint is still there")
        try journey.succeed(["rmdir", journey.mountpoint])
        let left = try journey.mediafs("status").output
        // Root is also shown the mounts of others, which tests that run at the same time make.
        #expect(geteuid() == 0 ? !left.contains(journey.mountpoint) : left.contains("There is no mount"), "\(left)")
        try journey.succeed(["mkdir", journey.mountpoint])
      }
    }
  }
}
