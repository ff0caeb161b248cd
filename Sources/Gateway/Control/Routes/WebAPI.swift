// SPDX-License-Identifier: MIT

import ControlShapes
import Messaging
import PageServer

/// `/v1/web/password`: the password of the pages on the local network.
struct WebAPI {
  private let operations: any GatewayOperations

  init(_ dependencies: ControlAPI.Dependencies) { operations = dependencies.operations }

  /// The request contains only the password's hash: the password stays where it was typed.
  func setPassword(_ body: RequestBody) throws(Refusal) -> Answer {
    let hash = try body.optional("hash")
    if let hash, !PasswordHash.isOne(hash) { throw .invalid("\"hash\" is not $scrypt$ln=…,r=…,p=…$SALT$HASH") }
    try operations.setWebPassword(hash)
    return .json { json in
      json.field(Shape.Ok().ok, true)
      json.field("serves", operations.webReport != nil)
    }
  }
}
