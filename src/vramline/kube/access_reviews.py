"""Who shows a token, and what they may see: the API server is asked, nothing is decided here."""

from vramline.errors import TransientError
from vramline.kube.client import KubeClient
from vramline.kube.failures import ApiError
from vramline.wire.access_review_v1 import (
    create_pods_review,
    is_allowed,
    list_pods_review,
    page_review,
)
from vramline.wire.token_review_v1 import Person, person_in, person_review

__all__ = ["AccessReviewer"]

_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class AccessReviewer:
    """Asks the API server about people. Every question raises `TransientError` while nobody can tell."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def who(self, token: str) -> Person | None:
        """Return whose token it is; None: nobody's, or not for the API server."""
        return person_in(await self._ask(_TOKENS, person_review(token)))

    async def may_look(self, person: Person, path: str) -> bool:
        """Whether RBAC lets somebody get this path of no resource."""
        return is_allowed(await self._ask(_ACCESS, page_review(person, path)))

    async def may_list_pods(self, person: Person, namespace: str) -> bool:
        """Whether RBAC lets somebody list the pods of a namespace; empty: of all."""
        return is_allowed(await self._ask(_ACCESS, list_pods_review(person, namespace)))

    async def may_create_pods(self, person: Person, namespace: str) -> bool:
        """Whether RBAC lets somebody create pods in a namespace."""
        return is_allowed(await self._ask(_ACCESS, create_pods_review(person, namespace)))

    async def _ask(self, path: str, question: dict[str, object]) -> object:
        try:
            return await self._client.ask(path, question)
        except ApiError as error:
            raise TransientError(str(error)) from error
