// SPDX-License-Identifier: MIT

import Companion
import Foundation
import MeshCrypto
import MeshIdentity
import MeshCoreFixtures
import Testing

@Suite struct ComputationTests {
  @Test(arguments: Fixtures.section("computations").indices) func `each recorded computation gives its recorded result`(
    _ index: Int
  ) {
    let row = Fixtures.section("computations")[index]
    let input = row["input"] as? [String: Any] ?? [:]
    let word = row["input"] as? String ?? ""
    let expected = row["output"]
    let name = row["name"] as! String
    func number(_ field: String) -> Int { (input[field] as? NSNumber)?.intValue ?? 0 }
    func secret(_ hex: String) -> ChannelSecret { ChannelSecret(bytes: Hex.bytes(hex)!)! }
    switch row["kind"] as! String {
    case "expected-ack":
      let ack = AckCode.expected(
        time: UInt32(number("time")), attempt: UInt8(number("attempt")), text: Text(input["text"] as! String),
        sender: PublicKey(hex: input["sender_key"] as! String)!)
      #expect(ack.hex == expected as? String, "\(name)")
    case "hashtag-secret": #expect(Hex.string(ChannelSecret.hashtag(word).bytes) == expected as? String, "\(name)")
    case "channel-hash": #expect(Hex.string([secret(word).channelHash]) == expected as? String, "\(name)")
    case "base64": #expect(Data(Hex.bytes(word)!).base64EncodedString() == expected as? String, "\(name)")
    case "transport-code":
      let packet = Packet(
        route: .flood, type: PayloadType(rawValue: UInt8(number("payload_type"))),
        payload: Hex.bytes(input["payload"] as! String)!)
      let code = packet.transportCode(scopeKey: secret(input["scope_key"] as! String))
      #expect(Int(code) == (expected as? NSNumber)?.intValue, "\(name)")
    case "reaction-hash-mc1":
      let hash = TextDigest.reactionHash(Text(input["text"] as! String), senderTime: UInt32(number("time")))
      #expect(hash == expected as? String, "\(name)")
    // Other apps' conventions, which this project does not follow.
    case "reaction-hash-mco", "dedup-digest": break
    case "ed25519-signature":
      let message = Hex.bytes(input["message"] as! String)!
      var signature = Hex.bytes(expected as! String)!
      let key = PublicKey(hex: input["key"] as! String)!
      #expect(Signature.verify(signature, of: message, by: key), "\(name)")
      signature[0] ^= 1
      #expect(!Signature.verify(signature, of: message, by: key), "\(name), one bit wrong")
    case "private-key":
      #expect(PrivateIdentity(expanded: Hex.bytes(word)!)?.publicKey.hex == expected as? String, "\(name)")
    case let kind: Issue.record("\(name): nothing computes \(kind)")
    }
  }

  @Test func `group texts open with their channel's secret and with no other`() throws {
    for vector in Fixtures.section("vectors") {
      guard let decoded = vector["decoded"] as? [String: Any], let decrypted = decoded["decrypted"] as? [String: Any]
      else { continue }
      let plain = decrypted["plain"] as! [String: Any]
      let packet = try Packet(decoding: Hex.bytes(vector["hex"] as! String)!)
      guard case .groupText(let envelope) = try packet.content() else {
        Issue.record("\(vector["name"]!) is no group text")
        continue
      }
      let secret = ChannelSecret(bytes: Hex.bytes(decrypted["secret"] as! String)!)!
      let opened = try #require(envelope.openText(with: secret), "\(vector["name"]!)")
      #expect(opened.text.string == plain["text"] as? String)
      #expect(Int(opened.time) == (plain["time"] as? NSNumber)?.intValue)
      #expect(envelope.openText(with: .zero) == nil)
      #expect(GroupEnvelope.seal(opened, with: secret) == envelope, "sealing gives the same bytes")
    }
  }

  @Test func `a public key verifies its private identity's signatures, and two identities share one secret`() throws {
    let (alice, bob) = (PrivateIdentity(seed: [1]), PrivateIdentity(seed: [2]))
    let signature = alice.sign([1, 2, 3])
    #expect(Signature.verify(signature, of: [1, 2, 3], by: alice.publicKey))
    #expect(!Signature.verify(signature, of: [1, 2, 3], by: bob.publicKey))
    #expect(alice.sharedSecret(with: bob.publicKey) == bob.sharedSecret(with: alice.publicKey))
    #expect(PrivateIdentity(expanded: alice.expanded)?.publicKey == alice.publicKey)
    #expect(PrivateIdentity(expanded: [1, 2]) == nil)
  }
}
