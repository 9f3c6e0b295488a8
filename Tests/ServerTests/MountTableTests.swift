import Glibc
import TestSupport
import Testing

@testable import Server

/// What the kernel's table of mounts tells.
@Suite struct MountTableTests {
  /// `-o fsname=` makes such a mount.
  @Test(arguments: ["", "shared:7 "]) func aSourceMayBeEmpty(_ tags: String) throws {
    let line = "36 25 0:52 / /media ro,nosuid \(tags)- fuse.mediafs  ro,user_id=1000,group_id=1000\n"
    let entry = try #require(MountTable.parse(Array(line.utf8)).first)
    #expect(entry.isMediafs && entry.mountpoint == "/media" && entry.device == 52)
    #expect(entry.source.isEmpty && entry.owner == 1000)
  }

  /// A remembered store on an NFS or sshfs whose server is gone would hang every command that looks at it.
  @Test func whatMayHangIsKnownWithoutAskingIt() throws {
    try withTemporaryFolder { folder in
      for name in ["nas", "disk", "phone", "home"] { try folder.makeFolder(name) }
      for (link, target) in [("media", "nas/films"), ("loop", "loop"), ("local", "disk")] {
        try #require(symlink(target, folder.file(link)) == 0)
      }
      var text = "20 1 0:2 / / rw - nfs4 host:/ rw\n21 20 0:3 / /proc rw - proc proc rw\n"
      for (name, type) in [("nas", "nfs4"), ("phone", "fuse.sshfs"), ("disk", "ext4"), ("home", "autofs")] {
        text += "30 20 0:9 / \(folder.file(name)) rw shared:1 - \(type) source rw\n"
      }
      let mayHang = MountTable.mayHang(MountTable.parse(Array(text.utf8)))
      for (path, expected) in [
        ("nas", true), ("nas/store", true), ("media/store", true), ("local/../nas/x", true), ("phone/x", true),
        ("home/user/store", true), ("disk/store", false), ("local/store", false), ("loop/x", false), ("", false),
        ("nasty", false),
      ] {
        #expect(mayHang(folder.file(path)) == expected, "\(path)")
      }
      #expect(!mayHang("/") && !mayHang("/nowhere"))
    }
  }
}
