"""Who is it that shows a token? The API server knows."""

from vramline.kube.client import KubeClient
from vramline.wire.token_review_v1 import TokenHolder, holder_in, token_review

__all__ = ["TokenReviewer"]

_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"


class TokenReviewer:
    """Asks the API server about tokens made for one audience."""

    def __init__(self, client: KubeClient, audience: str) -> None:
        self._client = client
        self._audience = audience

    async def review(self, token: str) -> TokenHolder | None:
        """Return whose token it is; None: nobody's, or not for this audience. Raises `ApiError`."""
        answer = await self._client.ask(_PATH, token_review(token, self._audience))
        return holder_in(answer, self._audience)
